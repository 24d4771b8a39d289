// apps/rametd/options.h - the daemon's command line, environment and configuration file. Not here: what is done with them
// (main.cc).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/http_server.h"
#include "base/log.h"
#include "host/host.h"

namespace ramet::daemon {

struct Options {
  host::HostOptions host;
  api::HttpOptions http;
  std::vector<std::string> listen;       // TCP addresses
  std::vector<std::string> allow_hosts;  // further names in Host headers
  bool allow_remote = false;
  LogLevel log_level = LogLevel::kInfo;
};

// Prints help, version or what is wrong by itself; then `exit_code` is set and the caller ends with it.
struct Parsed {
  Options options;
  std::optional<int> exit_code;
};
Parsed parse_command_line(int argc, char** argv);

}  // namespace ramet::daemon
