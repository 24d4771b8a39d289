// api/fd_stream.h - blocking bytes over a socket with a deadline and a wake-up descriptor; a SyncReadStream and SyncWriteStream
// for Beast. Asio's own blocking sockets ignore SO_RCVTIMEO and cannot be woken from another thread without closing them.
// Not here: ownership of the descriptor. Thread: one thread.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <optional>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>

#include "base/clock.h"

namespace ramet::api {

class FdStream {
 public:
  using error_code = boost::system::error_code;

  // Both borrowed. When `wake_fd` becomes readable every waiting call ends with operation_aborted.
  FdStream(int fd, int wake_fd) : fd_(fd), wake_fd_(wake_fd) {}

  int fd() const { return fd_; }
  void set_wake_fd(int wake_fd) { wake_fd_ = wake_fd; }
  // How long one read or write may wait; absent = for ever.
  void set_idle_timeout(std::optional<Milliseconds> idle) { idle_ = idle; }
  // Absolute bound over many reads, on top of the idle timeout.
  void set_deadline(std::optional<Deadline> deadline) { deadline_ = deadline; }

  // Errors: timed_out, operation_aborted.
  error_code wait(short events) {
    std::array<pollfd, 2> fds = {pollfd{fd_, events, 0}, pollfd{wake_fd_, POLLIN, 0}};
    std::optional<Deadline> until = deadline_;
    if (idle_) until = std::min(until.value_or(Deadline::max()), deadline_after(*idle_));
    while (true) {
      const int ms = until ? static_cast<int>(std::min<int64_t>(time_left(*until).count(), 1 << 30)) : -1;
      const int n = ::poll(fds.data(), fds.size(), ms);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return error_code(errno, boost::system::system_category());
      if (n == 0) return boost::asio::error::timed_out;
      if (fds[0].revents != 0) return {};
      return boost::asio::error::operation_aborted;
    }
  }

  template <class Buffers>
  size_t read_some(const Buffers& buffers, error_code& ec) {
    return transfer(
        buffers, POLLIN, ec, [this](msghdr* m) { return ::recvmsg(fd_, m, MSG_DONTWAIT); }, true);
  }
  template <class Buffers>
  size_t write_some(const Buffers& buffers, error_code& ec) {
    return transfer(
        buffers, POLLOUT, ec, [this](msghdr* m) { return ::sendmsg(fd_, m, MSG_DONTWAIT | MSG_NOSIGNAL); }, false);
  }
  template <class Buffers>
  size_t read_some(const Buffers& buffers) {
    error_code ec;
    const size_t n = read_some(buffers, ec);
    if (ec) throw boost::system::system_error(ec);
    return n;
  }
  template <class Buffers>
  size_t write_some(const Buffers& buffers) {
    error_code ec;
    const size_t n = write_some(buffers, ec);
    if (ec) throw boost::system::system_error(ec);
    return n;
  }

 private:
  template <class Buffers, class Call>
  size_t transfer(const Buffers& buffers, short events, error_code& ec, Call call, bool zero_is_end) {
    std::array<iovec, 16> iov;
    size_t count = 0;
    for (auto it = boost::asio::buffer_sequence_begin(buffers);
         it != boost::asio::buffer_sequence_end(buffers) && count < iov.size(); ++it) {
      const auto b = boost::asio::const_buffer(*it);
      if (b.size() == 0) continue;
      iov[count++] = {const_cast<void*>(b.data()), b.size()};
    }
    ec = {};
    if (count == 0) return 0;
    msghdr message{};
    message.msg_iov = iov.data();
    message.msg_iovlen = count;
    while (true) {
      const ssize_t n = call(&message);
      if (n > 0) return static_cast<size_t>(n);
      if (n == 0 && zero_is_end) {
        ec = boost::asio::error::eof;
        return 0;
      }
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        ec = error_code(errno, boost::system::system_category());
        return 0;
      }
      ec = wait(events);
      if (ec) return 0;
    }
  }

  int fd_;
  int wake_fd_;
  std::optional<Milliseconds> idle_;
  std::optional<Deadline> deadline_;
};

}  // namespace ramet::api
