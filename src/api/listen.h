// api/listen.h - the daemon's listening sockets. Not here: serving them. Thread: stateless.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet::api {

// A socket file of mode 0600. A file left by a dead daemon is replaced.   Errors: kExists (a live daemon listens there).
Result<UniqueFd> listen_on_unix(const std::string& path);

enum class Reach { kLoopbackOnly, kAnyAddress };
struct TcpListener {
  UniqueFd fd;
  std::string address;  // "127.0.0.1:7080", with the port the kernel chose when 0 was asked for
};
// "127.0.0.1:7080" or "[::1]:7080".   Errors: kInvalid, kPermission (not loopback, which needs kAnyAddress), kExists (port in
// use).
Result<TcpListener> listen_on_tcp(const std::string& address, Reach reach);

}  // namespace ramet::api
