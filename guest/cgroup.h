// guest/cgroup.h - the guest's cgroup v2 tree: the agent beside its users, one leaf per command.
//
//   /sys/fs/cgroup/ramet.agent        we: memory.min, high CPU weight
//   /sys/fs/cgroup/ramet.user         everything we start: pids.max, memory.max, cgroup.freeze
//   /sys/fs/cgroup/ramet.user/c<N>    one command and its descendants: cgroup.kill
//
// Not here: when to freeze (freezer.h) or kill (process.h). Thread: the reactor's. Owns the descriptor of ramet.user.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet::guest {

class UserTasks {
 public:
  // Makes or adopts DIR (normally /sys/fs/cgroup/ramet.user). Errors: by errno.
  static Result<UserTasks> open(const std::string& dir);
  // The whole tree for a machine of our own: controllers, both groups, limits with headroom for the agent, this process moved.
  static Result<UserTasks> set_up_machine(const std::string& root);

  struct Leaf {
    std::string name;
    UniqueFd dir;
  };
  Result<Leaf> make_leaf();
  std::string path_of(const std::string& leaf) const { return dir_ + "/" + leaf; }
  Status kill_leaf(const std::string& leaf) const;
  Status kill_all() const;
  // False while processes are left in it.
  bool remove_leaf(const std::string& leaf) const;

  Status set_frozen(bool frozen) const;
  // What cgroup.events says; EPOLLPRI on events_fd() tells of a change.
  bool all_frozen() const { return event("frozen") == 1; }
  bool populated() const { return event("populated") == 1; }
  int events_fd() const { return events_.get(); }

 private:
  UserTasks(std::string dir, UniqueFd fd, UniqueFd events)
      : dir_(std::move(dir)), fd_(std::move(fd)), events_(std::move(events)) {}
  int event(const std::string& key) const;

  std::string dir_;
  UniqueFd fd_;
  UniqueFd events_;
  uint64_t next_leaf_ = 1;
};

}  // namespace ramet::guest
