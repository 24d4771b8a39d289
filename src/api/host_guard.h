// api/host_guard.h - which requests the TCP listener answers, by their Host and Origin headers: keeps web pages away from a
// daemon that asks for no password, those whose name resolves to 127.0.0.1 (DNS rebinding) and those that post to it across
// sites. Not here: authentication. Thread: immutable after construction.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ramet::api {

class HostGuard {
 public:
  explicit HostGuard(std::vector<std::string> extra_names) : extra_names_(std::move(extra_names)) {}
  // True when `host` is a loopback address, `localhost` or an extra name, each with or without a port, and `origin`, which
  // browsers send and programs do not, is empty or this very host.
  bool operator()(std::string_view host, std::string_view origin) const;

 private:
  std::vector<std::string> extra_names_;
};

}  // namespace ramet::api
