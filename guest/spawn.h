// guest/spawn.h - starts one command: pipes or a terminal, its cgroup leaf, its process. The child's half (session, user,
// environment, exec) is in child.cc and blocks there, never here: a frozen guest or a slow disk must not stop the agent.
// Not here: what happens to the command afterwards (process.h). Thread: the reactor's.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "abi/agent.pb.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "cgroup.h"

namespace ramet::guest {

struct Spawned {
  pid_t pid = -1;
  std::string leaf;       // empty without cgroups
  UniqueFd start_status;  // end of file: the program runs; else a StartFailure, and the child is gone
  UniqueFd stdin_end;     // ours, non-blocking; the terminal's master is all three
  UniqueFd stdout_end;
  UniqueFd stderr_end;
  UniqueFd terminal;
};

// What a child that could not become the program writes to start_status.
struct StartFailure {
  int32_t code;  // abi::ErrorCode
  int32_t sys_errno;
  char message[240];
};

// Errors: kInvalid (nothing to run, both ways to run it, a zero byte, a name that cannot be a variable).
Status validate(const abi::Exec& exec);

// `users` is null where there are no cgroups of ours. Errors: kInvalid (see validate), else by errno.
Result<Spawned> spawn(const abi::Exec& exec, const std::string& sandbox_id, UserTasks* users);

// fork(2) for a child that runs `body` and exits with its answer; every descriptor but `keep` is closed in it. Signals are as
// in a fresh process. Errors: by errno.
Result<pid_t> fork_worker(int keep, const std::function<int(int fd)>& body);

Status set_window_size(int terminal, const abi::WindowSize& size);

}  // namespace ramet::guest
