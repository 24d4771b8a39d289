#include "base/socket.h"

#include "base/file.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ramet {
namespace {

Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof a.sun_path)
    return fail(ErrorKind::kInvalid, "socket path '" + path + "' has " + std::to_string(path.size()) + " bytes, the limit is " +
                                         std::to_string(sizeof a.sun_path - 1));
  std::memcpy(a.sun_path, path.data(), path.size());
  return a;
}

constexpr size_t kControlBytes = CMSG_SPACE(kMaxFdsPerMessage * sizeof(int)) + CMSG_SPACE(sizeof(ucred));

}  // namespace

Status wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, static_cast<int>(std::min<int64_t>(time_left(deadline).count(), 1 << 30)));
    if (n > 0) return {};
    if (n < 0 && errno != EINTR) return fail_errno("poll");
    if (n == 0 && MonotonicClock::now() >= deadline) return fail(ErrorKind::kTimeout, "nothing came before the deadline");
  }
}

Status send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds, Deadline deadline) {
  if (fds.size() > kMaxFdsPerMessage)
    return fail(ErrorKind::kInvalid,
                std::to_string(fds.size()) + " descriptors in one message, the limit is " + std::to_string(kMaxFdsPerMessage));
  alignas(cmsghdr) char control[kControlBytes] = {};
  iovec iov{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr m{};
  m.msg_iov = &iov;
  m.msg_iovlen = 1;
  if (!fds.empty()) {
    m.msg_control = control;
    m.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  for (;;) {
    const ssize_t n = ::sendmsg(socket, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == static_cast<ssize_t>(bytes.size())) return {};
    if (n >= 0) {  // a stream socket took a part; descriptors went with the first byte
      return write_all(socket, bytes.subspan(static_cast<size_t>(n)));
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return fail_errno("send message");
    TRY(wait_for(socket, POLLOUT, deadline));
  }
}

Result<Received> receive_message(int socket, size_t max_bytes, Deadline deadline) {
  Received out;
  alignas(cmsghdr) char control[kControlBytes];
  msghdr m{};
  ssize_t n;
  for (;;) {
    // Room for what is there, not for the longest: in a process that has just forked every fresh page is a fault. A stream's
    // length is not told (0).
    const ssize_t waiting = ::recv(socket, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    out.bytes.resize(waiting > 0 ? std::min(static_cast<size_t>(waiting), max_bytes) : max_bytes);
    iovec iov{out.bytes.data(), out.bytes.size()};
    m = msghdr{};
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    n = ::recvmsg(socket, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n >= 0) break;
    if (errno == EINTR) continue;
    if (errno == ECONNRESET) {
      n = 0;
      m.msg_controllen = 0;
      m.msg_flags = 0;
      break;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK) return fail_errno("receive message");
    TRY(wait_for(socket, POLLIN, deadline));
  }
  for (cmsghdr* c = m.msg_controllen ? CMSG_FIRSTHDR(&m) : nullptr; c; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET) continue;
    if (c->cmsg_type == SCM_RIGHTS) {
      const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; i++) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
        out.fds.emplace_back(fd);
      }
    } else if (c->cmsg_type == SCM_CREDENTIALS) {
      ucred cred;
      std::memcpy(&cred, CMSG_DATA(c), sizeof cred);
      out.sender_pid = cred.pid;
    }
  }
  if (m.msg_flags & MSG_CTRUNC) return fail(ErrorKind::kCorrupt, "descriptors of a message were truncated");
  if (m.msg_flags & MSG_TRUNC)
    return fail(ErrorKind::kCorrupt, "message is longer than the limit of " + std::to_string(max_bytes) + " bytes");
  out.bytes.resize(static_cast<size_t>(n));
  out.eof = n == 0;
  return out;
}

Result<UniqueFd> listen_unix(const std::string& path, int type, int backlog) {
  TRY_ASSIGN(const sockaddr_un address, unix_address(path));
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno("create socket");
  ::unlink(path.c_str());
  const mode_t old_mask = ::umask(0177);
  const int bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int err = errno;
  ::umask(old_mask);
  if (bound < 0) return fail_errno("bind " + path, err);
  if (::listen(fd.get(), backlog) < 0) return fail_errno("listen on " + path);
  return fd;
}

Result<UniqueFd> connect_unix(const std::string& path, int type) {
  TRY_ASSIGN(const sockaddr_un address, unix_address(path));
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno("create socket");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0)
    return fail_errno("connect " + path);
  return fd;
}

Result<UniqueFd> accept_unix(int listener, Deadline deadline) {
  for (;;) {
    TRY(wait_for(listener, POLLIN, deadline));
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) return UniqueFd(fd);
    if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) return fail_errno("accept");
  }
}

}  // namespace ramet
