// cli/exit_codes.h - the one table from kind of error to exit status; `ramet --help` prints it. Thread: pure functions.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"

namespace ramet::cli {

inline constexpr int kExitUsage = 2;
inline constexpr int kExitBeforeCommand = 125;  // exec and run: the command was never run, or its end was not seen
inline constexpr int kExitInterrupted = 130;

struct ExitRow {
  int status;
  std::string_view meaning;
};
std::span<const ExitRow> exit_rows();
int exit_status(ErrorKind kind);

}  // namespace ramet::cli
