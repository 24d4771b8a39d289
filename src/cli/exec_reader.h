// cli/exec_reader.h - the event lines of a running command -> its output and its end. Not here: input, signals (cmd_exec.cc).
// Thread: one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/http_client.h"

namespace ramet::cli {

std::optional<std::string> base64_decode(std::string_view text);

struct ExecEnd {
  int exit_code = 0;
  bool timed_out = false;
};
struct ExecSinks {
  std::function<void(uint32_t pid)> started;
  std::function<Status(std::string_view bytes)> out, err;
};
// Reads to the end.   Errors: those of the stream, the error the server sent, what a sink returns, kUnavailable (it ended
// without an exit).
Result<ExecEnd> read_exec_events(HttpStream& stream, const ExecSinks& sinks);

}  // namespace ramet::cli
