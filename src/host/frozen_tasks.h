// host/frozen_tasks.h - the user tasks of a running guest, frozen by its agent around the instant of a fork or a snapshot,
// until thaw() or the destructor. Both connections are made while they still run. Not here: the machine itself, which goes on.
// Thread: one. Owner: the operation.
#pragma once

#include <memory>

#include "host/agent_client.h"
#include "host/host.h"
#include "host/machine.h"

namespace ramet::host {

class FrozenTasks {
 public:
  FrozenTasks(Machine& machine, const HostOptions& options) : machine_(machine), options_(options) {}
  ~FrozenTasks() {
    if (frozen_) (void)thaw();
  }
  FrozenTasks(const FrozenTasks&) = delete;
  FrozenTasks& operator=(const FrozenTasks&) = delete;

  // Errors: kNotQuiescent (and everything is thawed again), kUnavailable.
  Status freeze();
  // Sends the word; the answer is awaited by confirm_thaw(), after more urgent work.
  void send_thaw();
  // True: user tasks run again.
  bool confirm_thaw();
  bool thaw();
  // The machine ends as it is: nobody is left to be thawed.
  void leave_frozen() { frozen_ = false; }
  double pause_ms() const { return static_cast<double>(ended_ns_ - began_ns_) / 1e6; }
  int64_t began_ns() const { return began_ns_; }

 private:
  Machine& machine_;
  const HostOptions& options_;
  std::unique_ptr<AgentChannel> thaw_;
  bool frozen_ = false, sent_ = false;
  int64_t began_ns_ = 0, ended_ns_ = 0;
};

}  // namespace ramet::host
