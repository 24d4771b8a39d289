// host/birth.h - one new sandbox on its way from a fork request to an identity confirmed by its agent.
//
//   (row journalled by the caller)
//   prepare   directory, console, socket, overlay, cgroup leaf; ChildSetup queued in its bootstrap socket
//     ── the caller has a machine forked ──
//   join      Ready from the right process, pid journalled, Commit, control link
//   identify  fresh entropy, name, machine id, wall clock; user tasks thawed      no confirmation = no child
//     ── the caller makes the row `running` ──
//   undo      at any point: everything above is taken back and the row goes
// Not here: asking for the fork (host_create.cc, host_fork.cc). Thread: one Birth by one thread; different ones in parallel.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "host/context.h"

namespace ramet::host {

struct Birth {
  MachineRow row;
  std::string overlay;  // its writable one
  MachineFiles files;
  BootstrapPair bootstrap;
  std::shared_ptr<MemoryFiller> filler;  // of its memory, while that is not complete
  std::shared_ptr<Machine> machine;
  std::optional<Error> error;
  int64_t requested_at_ns = 0;  // CLOCK_MONOTONIC, when the caller's request began
  int64_t fork_requested_at_ns = 0;
  double ready_ms = 0;
};

enum class BirthKind { kCreate, kFork };
enum class BirthStart { kAtOnce, kOnCommit };  // when its vCPUs enter

Status prepare_birth(const Context& context, Birth& birth, BirthStart start);
// Requires: prepared, and the machine was forked. Sets machine, timing and generation; on failure sets error.
void finish_birth(const Context& context, Birth& birth, UniqueFd pidfd, ForkStrictness strictness, BirthKind kind);
void undo_birth(const Context& context, Birth& birth);

}  // namespace ramet::host
