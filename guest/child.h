// guest/child.h - the child's half of starting a command, after the fork: becomes the program or reports why not.
// Runs in a single-threaded forked child, so it may allocate and block. Not here: the parent's half (spawn.h).
#pragma once

#include <string>

#include "abi/agent.pb.h"
#include "base/unique_fd.h"

namespace ramet::guest {

struct ChildStreams {
  UniqueFd in, out, err;
  UniqueFd terminal;  // instead of the three
};

// Default actions, nothing blocked or ignored.
void reset_signals();

[[noreturn]] void run_child(const abi::Exec& exec, const std::string& sandbox_id, ChildStreams streams, UniqueFd status);

}  // namespace ramet::guest
