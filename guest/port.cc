#include "port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/file.h"
#include "base/unique_fd.h"

namespace ramet::guest {
namespace {

Result<UniqueFd> connect_to(const sockaddr* address, socklen_t length) {
  UniqueFd s(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!s) return fail_errno("socket");
  if (::connect(s.get(), address, length) < 0) return fail_errno("connect");
  return s;
}

Result<UniqueFd> connect_local(uint16_t port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (Result<UniqueFd> s = connect_to(reinterpret_cast<const sockaddr*>(&v4), sizeof v4)) return s;
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_addr = in6addr_loopback;
  if (Result<UniqueFd> s = connect_to(reinterpret_cast<const sockaddr*>(&v6), sizeof v6)) return s;
  return fail(ErrorKind::kNotFound, "nothing listens on port " + std::to_string(port) + " of this guest");
}

// Two one-way streams over one poll loop; each direction holds back its source while its sink is full.
class Relay {
 public:
  Relay(Channel& channel, UniqueFd tcp) : channel_(channel), tcp_(std::move(tcp)) {}

  Status run() {
    TRY(set_nonblocking(channel_.fd(), true));
    TRY(set_nonblocking(tcp_.get(), true));
    while (!(host_done_ && tcp_done_ && to_tcp_.empty() && to_host_.empty())) {
      TRY(take_buffered());
      TRY(wait());
    }
    return set_nonblocking(channel_.fd(), false);
  }

 private:
  // Frames read together with an earlier one.
  Status take_buffered() {
    while (to_tcp_.empty() && !host_done_) {
      TRY_ASSIGN(std::optional<abi::Input> input, channel_.buffered());
      if (!input) return {};
      to_tcp_ = input->data().bytes();
      host_done_ = input->data().eof();
      TRY(flush_tcp());
    }
    return {};
  }

  Status wait() {
    pollfd fds[2] = {{channel_.fd(), 0, 0}, {tcp_.get(), 0, 0}};
    if (to_tcp_.empty() && !host_done_) fds[0].events |= POLLIN;
    if (!to_host_.empty()) fds[0].events |= POLLOUT;
    if (to_host_.empty() && !tcp_done_) fds[1].events |= POLLIN;
    if (!to_tcp_.empty()) fds[1].events |= POLLOUT;
    for (pollfd& p : fds)
      if (p.events == 0) p.fd = -1;
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) return fail_errno("poll");
    constexpr short kReadable = POLLIN | POLLHUP | POLLERR;
    if ((fds[0].events & POLLIN) && (fds[0].revents & kReadable)) {
      TRY_ASSIGN(const bool more, channel_.fill());
      if (!more) return fail(ErrorKind::kUnavailable, "the host is gone");
    }
    if (fds[0].revents & (POLLOUT | POLLERR)) TRY(flush_host());
    if ((fds[1].events & POLLIN) && (fds[1].revents & kReadable)) TRY(read_tcp());
    if (fds[1].revents & (POLLOUT | POLLERR)) TRY(flush_tcp());
    return {};
  }

  Status read_tcp() {
    const ssize_t n = ::recv(tcp_.get(), buffer_.data(), buffer_.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (n < 0) return fail_errno("read from the port");
    abi::Event event;
    event.mutable_data()->set_bytes(buffer_.data(), static_cast<size_t>(n));
    event.mutable_data()->set_eof(n == 0);
    tcp_done_ = n == 0;
    if (!abi::append_frame(event, to_host_)) return fail(ErrorKind::kInternal, "a chunk does not fit a frame");
    return flush_host();
  }

  static Result<bool> send_some(int fd, std::string& bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return false;
      if (n < 0) return fail_errno("send");
      bytes.erase(0, static_cast<size_t>(n));
    }
    return true;
  }

  Status flush_host() {
    TRY(send_some(channel_.fd(), to_host_));
    return {};
  }

  Status flush_tcp() {
    TRY_ASSIGN(const bool all, send_some(tcp_.get(), to_tcp_));
    if (all && host_done_ && !tcp_shut_) {
      ::shutdown(tcp_.get(), SHUT_WR);
      tcp_shut_ = true;
    }
    return {};
  }

  Channel& channel_;
  UniqueFd tcp_;
  std::array<char, abi::kChunkBytes> buffer_;
  std::string to_tcp_, to_host_;
  bool host_done_ = false, tcp_done_ = false, tcp_shut_ = false;
};

Status serve(uint32_t port, Channel& channel) {
  if (port == 0 || port > 65535)
    return fail(ErrorKind::kInvalid, "port " + std::to_string(port) + " is not between 1 and 65535");
  TRY_ASSIGN(UniqueFd tcp, connect_local(static_cast<uint16_t>(port)));
  const int on = 1;
  ::setsockopt(tcp.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  abi::Event connected;
  connected.mutable_data();
  TRY(channel.send(connected));
  Relay relay(channel, std::move(tcp));
  return relay.run();
}

}  // namespace

int run_port_connection(uint32_t port, Channel& channel) {
  const Status outcome = serve(port, channel);
  if (!outcome) (void)set_nonblocking(channel.fd(), false).has_value();
  channel.finish(outcome, {});
  return outcome ? 0 : 1;
}

}  // namespace ramet::guest
