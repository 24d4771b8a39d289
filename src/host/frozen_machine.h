// host/frozen_machine.h - a sandbox at one instant: a forked monitor that never runs holds its memory, frozen overlays its
// disk, while they are stored; the sandbox goes on. Its row is journalled before it exists, and it ends with this object, with
// the daemon, or by recovery. Not here: what is stored, and where (snapshots.h).
// A resource. Thread: one at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "commit/process_memory.h"
#include "host/context.h"
#include "host/frozen_tasks.h"
#include "image/overlay_stack.h"

namespace ramet::host {

class FrozenMachine {
 public:
  // `tasks`: the user tasks that stand still for the instant, and go on when it is over; null: as they are.
  // Requires: the locks of a fork are held.
  // Errors: kNotQuiescent, and those of a fork; the sandbox goes on as before then.
  static Result<std::unique_ptr<FrozenMachine>> make(const Context& context, const SandboxInfo& of, Machine& machine,
                                                     FrozenTasks* tasks);
  ~FrozenMachine();
  FrozenMachine(const FrozenMachine&) = delete;
  FrozenMachine& operator=(const FrozenMachine&) = delete;

  const SnapshotTiming& timing() const { return timing_; }
  // What it stood on.
  const MachineBases& bases() const { return bases_; }
  // Errors: as ProcessMemory::open.
  Result<commit::ProcessMemory> memory() const;
  // Errors: kCorrupt (too long), kIo.
  Result<std::string> vmstate() const;
  // Of its disk, oldest first.   Errors: kNoSpace (less than they may need in the store), kIo.
  Result<std::vector<image::OverlayFiles>> overlays() const;

 private:
  FrozenMachine(const Context& context, std::string id) : context_(context), id_(std::move(id)) {}
  Status prepare();
  Status fork(const SandboxInfo& of, Machine& machine, FrozenTasks* tasks);
  Status await(UniqueFd pidfd);

  const Context& context_;
  const std::string id_;  // of its row
  SnapshotTiming timing_;
  MachineBases bases_;
  BootstrapPair bootstrap_;
  UniqueFd vmstate_, pidfd_;
  pid_t pid_ = 0;
  vmm::Ready ready_;
};

// Overlays that nobody writes, opened to be read; the store may need as much room as they have content.
Result<std::vector<image::OverlayFiles>> open_frozen_overlays(const Context& context, const std::vector<std::string>& ids);

}  // namespace ramet::host
