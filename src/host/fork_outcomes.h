// host/fork_outcomes.h - what forks came to, noted in the registry; those that it could not take are kept and tried again.
//
// Until an outcome is noted the registry does not know on which overlay its machine writes. What is journalled after that
// builds on the machine's chain, so it must wait: note_all_of() stands before every fork, commit and merge. A daemon that ends
// before leaves the operation in the registry, and the next one looks which overlay it was (recovery.cc). Not here: what an
// outcome means to chains and overlays (registry.h). Thread: any. Owner: HostImpl.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/result.h"
#include "host/registry.h"

namespace ramet::host {

class ForkOutcomes {
 public:
  // `make_room` is called when the registry finds the disk full.
  ForkOutcomes(Registry& registry, std::function<void()> make_room) : registry_(registry), make_room_(std::move(make_room)) {}

  // Twice is once.   Errors: those of the registry; then it is kept.   Requires: the second time `swapped` is the same.
  Status note(const ForkIntent& fork, bool swapped);
  // Those of this machine that were kept.   Errors: as note().
  Status note_all_of(const std::string& machine_id);
  // Of all machines; what cannot be noted stays. How many were noted.
  size_t try_again();
  size_t kept() const;

 private:
  struct Outcome {
    std::string parent;
    bool swapped = false;
  };
  Status settle(const std::string& operation_id, bool swapped);
  std::map<std::string, Outcome> copy() const;

  Registry& registry_;
  const std::function<void()> make_room_;
  mutable std::mutex mutex_;
  std::map<std::string, Outcome> kept_;  // guarded by mutex_: by operation
};

}  // namespace ramet::host
