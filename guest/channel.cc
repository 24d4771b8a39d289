#include "channel.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/file.h"
#include "error_table.h"

namespace ramet::guest {

Channel::Channel(int fd, abi::FrameBuffer input) : fd_(fd), input_(std::move(input)) {
  (void)set_nonblocking(fd, false).has_value();
}

Result<std::optional<abi::Input>> Channel::buffered() {
  const std::optional<std::string_view> message = input_.next();
  if (input_.too_long()) return fail(ErrorKind::kInvalid, "a frame is longer than the limit of 1 MiB");
  if (!message) return std::optional<abi::Input>();
  abi::Input input;
  if (!input.ParseFromArray(message->data(), static_cast<int>(message->size())))
    return fail(ErrorKind::kInvalid, "a frame is not an Input message");
  return std::optional<abi::Input>(std::move(input));
}

Result<bool> Channel::fill() {
  static std::array<char, abi::kChunkBytes> buffer;
  for (;;) {
    const ssize_t n = ::recv(fd_, buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n < 0) return fail_errno("read from the host");
    input_.feed(buffer.data(), static_cast<size_t>(n));
    return n > 0;
  }
}

Result<abi::Input> Channel::receive() {
  for (;;) {
    TRY_ASSIGN(std::optional<abi::Input> input, buffered());
    if (input) return std::move(*input);
    TRY_ASSIGN(const bool more, fill());
    if (!more) return fail(ErrorKind::kUnavailable, "the host closed the connection early");
  }
}

Status Channel::send(const abi::Event& event) {
  out_.clear();
  if (!abi::append_frame(event, out_)) return fail(ErrorKind::kInternal, "an event is longer than a frame may be");
  std::string_view rest = out_;
  while (!rest.empty()) {
    const ssize_t n = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("write to the host");
    rest.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

void Channel::finish(const Status& outcome, abi::Event success) {
  if (outcome) success.mutable_result();
  (void)send(outcome ? success : result_event(outcome.error())).has_value();
}

}  // namespace ramet::guest
