// base/unique_fd.h - the owner of a file descriptor. Everything we open is O_CLOEXEC; raw ints are only borrowed during a call.
// Thread: a value; not shared. Errors: none (close errors are not reported here: sync what matters before).
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "base/result.h"

namespace ramet {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& o) noexcept {
    if (this != &o) reset(std::exchange(o.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  explicit operator bool() const { return valid(); }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

  // A second descriptor of the same open file description, close-on-exec.
  Result<UniqueFd> duplicate() const;

 private:
  int fd_ = -1;
};

}  // namespace ramet
