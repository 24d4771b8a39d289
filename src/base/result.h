// base/result.h - how every fallible function answers: Result<T> = a value or an Error.
// Error is a value: a kind that callers branch on, a sentence that people read, the errno when there was one.
// Not here: HTTP status or exit codes (one table each, in api/ and cli/). Thread: values, no shared state.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace ramet {

enum class ErrorKind {
  kInvalid,  // the request or input is malformed or breaks a limit
  kNotFound,
  kExists,
  kConflict,  // not possible in the present state
  kNoSpace,   // disk, memory or quota of the host is used up
  kNoMemory,
  kPermission,
  kTimeout,
  kUnavailable,  // a peer is gone or the facility is missing on this machine
  kUnsupported,
  kCorrupt,  // stored or received bytes contradict themselves
  kIo,
  kCancelled,
  kNotQuiescent,  // the guest could not be brought to a standstill in time
  kInternal,      // a bug of ours
};

// The stable snake_case word for a kind, as used in JSON, logs and metrics.
std::string_view kind_name(ErrorKind kind);
// The inverse; unknown words give kInternal.
ErrorKind kind_from_name(std::string_view name);
// The one place where errno becomes a kind.
ErrorKind kind_of_errno(int err);

class [[nodiscard]] Error {
 public:
  Error(ErrorKind kind, std::string message, int err = 0) : kind_(kind), errno_(err), message_(std::move(message)) {}

  ErrorKind kind() const { return kind_; }
  int err() const { return errno_; }
  // One sentence with the offending value and the limit it broke.
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }

  // "operation: message", used while an error travels upwards.
  Error with_context(std::string_view operation) &&;
  // What the user should do next.
  Error with_hint(std::string hint) &&;
  // "kind: message" for logs.
  std::string to_string() const;

 private:
  ErrorKind kind_;
  int errno_;
  std::string message_;
  std::string hint_;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> fail(ErrorKind kind, std::string message) {
  return tl::unexpected<Error>(Error(kind, std::move(message)));
}
// From the current errno: kind by kind_of_errno, message "what: strerror".
tl::unexpected<Error> fail_errno(std::string_view what);
tl::unexpected<Error> fail_errno(std::string_view what, int err);

#define RAMET_CONCAT_(a, b) a##b
#define RAMET_CONCAT(a, b) RAMET_CONCAT_(a, b)

// TRY(expr): returns the error of a Status (or Result) from the enclosing function.
#define TRY(expr)                                                                          \
  do {                                                                                     \
    auto ramet_try_ = (expr);                                                              \
    if (!ramet_try_) return tl::unexpected<::ramet::Error>(std::move(ramet_try_).error()); \
  } while (0)

// TRY_ASSIGN(lhs, expr): lhs = value, or returns the error.
#define TRY_ASSIGN(lhs, expr)                                                                     \
  auto RAMET_CONCAT(ramet_try_, __LINE__) = (expr);                                               \
  if (!RAMET_CONCAT(ramet_try_, __LINE__))                                                        \
    return tl::unexpected<::ramet::Error>(std::move(RAMET_CONCAT(ramet_try_, __LINE__)).error()); \
  lhs = std::move(*RAMET_CONCAT(ramet_try_, __LINE__))

}  // namespace ramet
