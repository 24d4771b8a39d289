// guest/workers.h - short-lived forked children for everything that may block: files, disks, ports. They share nothing with the
// agent afterwards, so neither a slow disk nor a bug in them stops it. Bounded: kMaxWorkers.
// Not here: what they do. Thread: the reactor's.
#pragma once

#include <functional>
#include <map>

#include "spawn.h"

namespace ramet::guest {

class Workers {
 public:
  static constexpr size_t kMaxWorkers = 256;
  using OnExit = std::function<void(int exit_code)>;  // 255 when a signal ended it

  // `keep` (or -1) is the one descriptor the body gets. Errors: kNoMemory at the limit, else by errno.
  Status start(int keep, const std::function<int(int fd)>& body, OnExit on_exit = {});
  // Called with every reaped child that is not a command.
  void on_child_exit(pid_t pid, int wait_status);
  size_t running() const { return running_.size(); }

 private:
  std::map<pid_t, OnExit> running_;
};

}  // namespace ramet::guest
