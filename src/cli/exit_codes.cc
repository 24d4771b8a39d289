#include "cli/exit_codes.h"

#include <array>

namespace ramet::cli {
namespace {

constexpr std::array kRows = {
    ExitRow{0, "done"},
    ExitRow{1, "failed"},
    ExitRow{kExitUsage, "the command line or a value in it is wrong"},
    ExitRow{3, "there is no such sandbox, template, file or machine"},
    ExitRow{4, "not possible in its present state, or the name is taken"},
    ExitRow{5, "no memory, disk space or quota left"},
    ExitRow{6, "no server answers, or the sandbox ended meanwhile"},
    ExitRow{7, "it took too long"},
    ExitRow{8, "this machine lacks what it needs (`ramet doctor`)"},
    ExitRow{9, "not permitted"},
    ExitRow{kExitBeforeCommand, "exec, run: ramet failed before the command ended; else their status is the command's"},
    ExitRow{kExitInterrupted, "interrupted"},
};

}  // namespace

std::span<const ExitRow> exit_rows() { return kRows; }

int exit_status(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalid: return kExitUsage;
    case ErrorKind::kNotFound: return 3;
    case ErrorKind::kExists:
    case ErrorKind::kConflict:
    case ErrorKind::kNotQuiescent: return 4;
    case ErrorKind::kNoSpace:
    case ErrorKind::kNoMemory: return 5;
    case ErrorKind::kUnavailable: return 6;
    case ErrorKind::kTimeout: return 7;
    case ErrorKind::kUnsupported: return 8;
    case ErrorKind::kPermission: return 9;
    case ErrorKind::kCancelled: return kExitInterrupted;
    case ErrorKind::kCorrupt:
    case ErrorKind::kIo:
    case ErrorKind::kInternal: return 1;
  }
  return 1;
}

}  // namespace ramet::cli
