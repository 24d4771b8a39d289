// api/host_guard.h - which Host headers the TCP listener answers: keeps web pages whose name resolves to 127.0.0.1 (DNS rebinding)
// away from a daemon that asks for no password. Not here: authentication. Thread: immutable after construction.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ramet::api {

class HostGuard {
 public:
  explicit HostGuard(std::vector<std::string> extra_names) : extra_names_(std::move(extra_names)) {}
  // True for loopback addresses, `localhost` and the extra names, each with or without a port.
  bool operator()(std::string_view host_header) const;

 private:
  std::vector<std::string> extra_names_;
};

}  // namespace ramet::api
