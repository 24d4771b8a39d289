// guest/freezer.h - brings all user tasks to a standstill for a strict fork or snapshot, and decides when they run again.
//
//             freeze()            events: frozen 1
//   thawed --------------> freezing ---------------> frozen
//     ^                       | deadline               |  thaw() (host), or abandoned: see README, "Who thaws"
//     +-----------------------+------------------------+
//
// Not here: the cgroup files (cgroup.h), identity (identity.h). Thread: the reactor's.
#pragma once

#include <functional>
#include <optional>

#include "cgroup.h"
#include "generation.h"
#include "reactor.h"

namespace ramet::guest {

class Freezer {
 public:
  using Done = std::function<void(Result<Nanoseconds> took)>;

  // `users` may be null: then nothing can be frozen.
  Freezer(Reactor& reactor, UserTasks* users, GenerationWatch& generation);

  // Calls `done` once. Errors: kNotQuiescent at the deadline, kUnsupported without cgroups, kCancelled when thawed meanwhile.
  void freeze(Nanoseconds deadline, Done done);
  Status thaw();
  bool frozen() const { return state_ != State::kThawed; }
  // The transport of some connection was reset, as a fork of the machine does.
  void on_transport_reset() { transport_reset_ = true; }

 private:
  enum class State { kThawed, kFreezing, kFrozen };
  static constexpr int kAbandonedTicks = 30;

  void on_events();
  void complete(Result<Nanoseconds> outcome);
  void tick();

  Reactor& reactor_;
  UserTasks* users_;
  GenerationWatch& generation_;
  State state_ = State::kThawed;
  std::vector<Done> waiting_;
  MonotonicClock::time_point began_at_;
  Watch events_watch_;
  Timer deadline_timer_;

  int ticks_ = 0;
  Timer tick_timer_;
  uint32_t generation_at_freeze_ = 0;
  bool transport_reset_ = false;
};

}  // namespace ramet::guest
