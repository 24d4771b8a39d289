#include "api/host_guard.h"

#include <arpa/inet.h>
#include <strings.h>

#include <algorithm>

namespace ramet::api {
namespace {

// "name:port" -> "name", "[::1]:port" -> "::1".
std::string without_port(std::string_view host) {
  if (host.starts_with('['))
    return std::string(host.substr(1, host.find(']') == std::string_view::npos ? 0 : host.find(']') - 1));
  return std::string(host.substr(0, host.find(':')));
}

bool is_loopback_address(const std::string& name) {
  in_addr v4{};
  if (::inet_pton(AF_INET, name.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, name.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

bool HostGuard::operator()(std::string_view host, std::string_view origin) const {
  if (!origin.empty() && origin != "http://" + std::string(host)) return false;
  const std::string name = without_port(host);
  if (name.empty()) return false;
  if (is_loopback_address(name) || ::strcasecmp(name.c_str(), "localhost") == 0) return true;
  return std::any_of(extra_names_.begin(), extra_names_.end(),
                     [&](const std::string& extra) { return ::strcasecmp(extra.c_str(), name.c_str()) == 0; });
}

}  // namespace ramet::api
