#include "host/types.h"

namespace ramet::host {

const char* state_name(SandboxState state) {
  switch (state) {
    case SandboxState::kCreating: return "creating";
    case SandboxState::kRunning: return "running";
    case SandboxState::kPausing: return "pausing";
    case SandboxState::kPaused: return "paused";
    case SandboxState::kResuming: return "resuming";
    case SandboxState::kFailed: return "failed";
    case SandboxState::kGone: return "gone";
  }
  return "failed";
}

const char* file_type_name(FileType type) {
  switch (type) {
    case FileType::kRegular: return "file";
    case FileType::kDirectory: return "directory";
    case FileType::kSymlink: return "symlink";
    case FileType::kOther: return "other";
    case FileType::kUnknown: break;
  }
  return "unknown";
}

}  // namespace ramet::host
