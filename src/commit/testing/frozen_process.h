// commit/testing/frozen_process.h - a forked child of a test or benchmark that has its memory and does nothing, or one thing.
// Thread: one. Kills and reaps it.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/child_process.h"
#include "commit/process_memory.h"

namespace ramet::commit::testing {

class FrozenProcess {
 public:
  // Requires: this process has no other thread.
  explicit FrozenProcess(const std::function<void()>& first = {}) : pid_(::fork()) {
    if (pid_ != 0) {
      pidfd_ = open_pidfd(pid_).value();
      return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (first) first();
    ::close_range(3, ~0u, 0);  // the lock of a store, for one
    for (;;) ::pause();
  }
  ~FrozenProcess() { kill(); }
  FrozenProcess(const FrozenProcess&) = delete;
  FrozenProcess& operator=(const FrozenProcess&) = delete;

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  Result<ProcessMemory> memory(const void* address, uint64_t bytes) const {
    return ProcessMemory::open(
        {.pid = pid_, .pidfd = pidfd_.get(), .address = reinterpret_cast<uintptr_t>(address), .size_bytes = bytes});
  }
  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }

 private:
  pid_t pid_;
  UniqueFd pidfd_;
};

}  // namespace ramet::commit::testing
