#include "workers.h"

#include <sys/wait.h>

namespace ramet::guest {

Status Workers::start(int keep, const std::function<int(int)>& body, OnExit on_exit) {
  if (running_.size() >= kMaxWorkers)
    return fail(ErrorKind::kNoMemory,
                std::to_string(running_.size()) + " operations are under way, the limit is " + std::to_string(kMaxWorkers));
  TRY_ASSIGN(const pid_t pid, fork_worker(keep, body));
  running_[pid] = std::move(on_exit);
  return {};
}

void Workers::on_child_exit(pid_t pid, int wait_status) {
  const auto it = running_.find(pid);
  if (it == running_.end()) return;  // an orphan we reap as init
  const OnExit on_exit = std::move(it->second);
  running_.erase(it);
  if (on_exit) on_exit(WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 255);
}

}  // namespace ramet::guest
