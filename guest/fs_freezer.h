// guest/fs_freezer.h - freezes the root file system for a disk-only snapshot (FIFREEZE) and always thaws it again.
//
//   thawed -> freezing -> frozen -> thawed       by ThawFs, or when the hold is over
//                 \-> late -> thawed             the deadline passed: when FIFREEZE returns at last, thaw at once
//
// The ioctls run in workers: they wait for the disk. Thread: the reactor's.
#pragma once

#include "reactor.h"
#include "workers.h"

namespace ramet::guest {

class FsFreezer {
 public:
  using Done = std::function<void(Result<Nanoseconds> took)>;

  FsFreezer(Reactor& reactor, Workers& workers) : reactor_(reactor), workers_(workers) {}

  // Calls `done` once. Errors: kConflict when not thawed, kNotQuiescent at the deadline, kUnsupported by the file system.
  void freeze(Nanoseconds deadline, Nanoseconds hold, Done done);
  // Calls `done` when thawed; thawed already is a success.
  void thaw(std::function<void(Status)> done);

 private:
  enum class State { kThawed, kFreezing, kLate, kFrozen };
  void on_frozen(int err, Nanoseconds hold);
  void answer(Result<Nanoseconds> outcome);

  Reactor& reactor_;
  Workers& workers_;
  State state_ = State::kThawed;
  Done done_;
  MonotonicClock::time_point began_at_;
  Timer timer_;
};

// For workers: the exit code is an errno.
int sync_file_systems();
int drop_caches();

}  // namespace ramet::guest
