#include "api/listen.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <charconv>
#include <cstring>

#include "base/socket.h"

namespace ramet::api {
namespace {

constexpr int kBacklog = 256;

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  bool loopback = false;
};

Result<Address> parse_address(const std::string& text) {
  const auto broken = [&] {
    return fail(ErrorKind::kInvalid,
                "`" + text + "` is not ADDRESS:PORT with a numeric address, e.g. 127.0.0.1:7080 or [::1]:7080");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return broken();
  uint16_t port = 0;
  const auto [end, ec] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
  if (ec != std::errc() || end != text.data() + text.size()) return broken();
  std::string host = text.substr(0, colon);
  Address out;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    if (::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6.sin6_addr) != 1) return broken();
    out.loopback = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
    out.length = sizeof v6;
    memcpy(&out.storage, &v6, sizeof v6);
    return out;
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) != 1) return broken();
  out.loopback = (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  out.length = sizeof v4;
  memcpy(&out.storage, &v4, sizeof v4);
  return out;
}

std::string show_address(const sockaddr_storage& storage) {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    memcpy(&v6, &storage, sizeof v6);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(ntohs(v6.sin6_port));
  }
  sockaddr_in v4{};
  memcpy(&v4, &storage, sizeof v4);
  ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
  return std::string(text) + ":" + std::to_string(ntohs(v4.sin_port));
}

}  // namespace

Result<UniqueFd> listen_on_unix(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    return fail(ErrorKind::kInvalid,
                "socket path `" + path + "` has " + std::to_string(path.size()) + " bytes, the limit is 107");
  if (connect_unix(path, SOCK_STREAM))
    return tl::unexpected(Error(ErrorKind::kExists, "another rametd already listens on " + path)
                              .with_hint("Stop it, or choose another directory with --runtime."));
  return ::ramet::listen_unix(path, SOCK_STREAM, kBacklog);
}

Result<TcpListener> listen_on_tcp(const std::string& address, Reach reach) {
  TRY_ASSIGN(const Address at, parse_address(address));
  if (!at.loopback && reach == Reach::kLoopbackOnly)
    return tl::unexpected(
        Error(ErrorKind::kPermission, "`" + address + "` is not a loopback address, and the API asks for no password")
            .with_hint("Listen on 127.0.0.1, or add --allow-remote if whoever reaches this port may own the machine."));
  TcpListener out;
  out.fd.reset(::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!out.fd) return fail_errno("socket");
  const int on = 1;
  ::setsockopt(out.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // Inherited by accepted sockets: a stream may be silent for hours, a vanished client must still be noticed.
  ::setsockopt(out.fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(out.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::bind(out.fd.get(), reinterpret_cast<const sockaddr*>(&at.storage), at.length) != 0)
    return fail_errno("listening on " + address);
  if (::listen(out.fd.get(), kBacklog) != 0) return fail_errno("listening on " + address);
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(out.fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) return fail_errno("getsockname");
  out.address = show_address(bound);
  return out;
}

}  // namespace ramet::api
