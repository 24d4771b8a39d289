// guest/process_table.h - all commands by pid: running ones, and finished ones for a while so that their output and end can
// still be fetched. Bounded: kMaxRunning commands, kMaxFinished records, kMaxKeptBytes of finished output, kKeepFinished of
// age. Not here: one command (process.h). Thread: the reactor's.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>

#include "process.h"

namespace ramet::guest {

class ProcessTable {
 public:
  static constexpr size_t kMaxRunning = 1024;
  static constexpr size_t kMaxFinished = 256;
  static constexpr size_t kMaxKeptBytes = 8u << 20;
  static constexpr Nanoseconds kKeepFinished = std::chrono::minutes(10);

  // `users` is null where there are no cgroups of ours.
  ProcessTable(Reactor& reactor, UserTasks* users);

  // Errors: kNoMemory at kMaxRunning, else as spawn().
  // The answer is shared: the table keeps it while it is of interest, a follower while it reads.
  Result<std::shared_ptr<Process>> start(const abi::Exec& exec, const std::string& sandbox_id);
  // Errors: kNotFound.
  Result<std::shared_ptr<Process>> find(uint32_t pid) const;
  abi::ProcessList list() const;

  // Reaps every child that has ended. Others than commands are reported to `on_other`.
  void reap(const std::function<void(pid_t pid, int wait_status)>& on_other);

 private:
  void on_over(pid_t pid);
  void forget_finished();
  void erase(pid_t pid);
  void watch_leaf(const std::string& leaf);
  void on_leaf_events();

  Reactor& reactor_;
  UserTasks* users_;
  const std::string default_user_;  // read once: for show, and the loop does not wait for the disk
  std::map<pid_t, std::shared_ptr<Process>> processes_;
  std::list<pid_t> finished_;  // oldest first
  Timer forget_timer_;

  // Leaves whose processes outlive their command go when the last of them does; cgroup.events tells by inotify.
  UniqueFd inotify_;
  Watch inotify_watch_;
  std::map<int, std::string> populated_leaves_;
};

}  // namespace ramet::guest
