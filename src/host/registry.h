// host/registry.h - what this host knows about its machines and overlays, in SQLite, so that the next daemon can go on.
//
// Every machine (sandbox, zygote, template builder) is a row *before* anything that belongs to it exists; all it owns outside
// (process, cgroup, socket, directory, overlay files) is named after its id or its overlays' ids, so the row alone is enough to
// undo it. A live fork is one row of `operations` more: until it is settled the parent may or may not have moved to its next
// overlay, and recovery asks the parent's process which (recovery.h).
//
// Durability: WAL without a sync per commit. What the rows describe (processes) does not survive a loss of power either; a
// killed daemon loses nothing, and after a power cut a consistent older state plus the sweep of orphans is all that is needed.
// Not here: the things themselves. Thread: any; one lock, held only across SQLite calls.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sqlite.h"
#include "host/types.h"

namespace ramet::host {

// frozen: a sandbox's memory at one instant, while a snapshot of it is stored. aside: what a sandbox (its parent) was before a
// rollback, until that is done.
enum class MachineRole { kSandbox, kZygote, kBuilder, kFrozen, kAside };

struct MachineRow {
  SandboxInfo info;  // of zygotes and builders only id, template, state, size
  MachineRole role = MachineRole::kSandbox;
  std::string template_digest;  // of its template.json: a zygote of a replaced template is not adopted
  // The template disk that it reads over a chunk socket; empty: it has a descriptor of a raw file (from an earlier version).
  std::string base_image;
  // The snapshot whose memory its own was at first; empty: that is not in the store.
  std::string base_memory;
  std::string saved;  // the snapshot that it is paused in
  // Of a paused one, to live after its resume; 0: as long as it wants; none: as its saved state says.
  std::optional<int64_t> time_left_ns;
  int64_t pid = 0;         // 0: not started
  uint64_t pid_start = 0;  // field 22 of /proc/PID/stat: with pid, names one process of this boot
  uint64_t ram_address = 0;
  uint64_t ram_bytes = 0;
};

// What a machine stands on, as its row says; empty where there is none.
struct MachineBases {
  std::string image, memory, saved;
};

// writable: one machine writes it; frozen: nobody may, any number read; sealed: frozen, durable and immutable; doomed: being
// deleted.
enum class OverlayState { kWritable, kFrozen, kSealed, kDoomed };
struct OverlayRow {
  std::string id;
  OverlayState state = OverlayState::kWritable;
};

struct ForkIntent {
  std::string id;  // of the operation
  std::string parent;
  std::string parent_next;  // overlay prepared for the parent; empty when it has no disk (zygote)
  std::vector<MachineRow> children;
  std::vector<std::string> child_overlays;  // one per child; empty: it writes none
};
struct PendingFork {
  std::string id, parent, parent_next;
  std::vector<std::string> children;
};

class Registry {
 public:
  static constexpr int kSchemaVersion = 4;

  // Errors: kCorrupt, kUnsupported (written by a newer version), kPermission, kNoSpace.
  static Result<std::unique_ptr<Registry>> open(const std::string& path);

  // Once per boot of the machine: true when the last writer ran in another boot (its processes are all gone).
  Result<bool> note_boot(const std::string& boot_id);

  // A machine and its chain: `frozen` (oldest first, already known) and, if not empty, its new writable overlay.
  Status add_machine(const MachineRow& row, const std::vector<std::string>& frozen, const std::string& writable);
  // The intent to fork: the operation, the parent's next overlay, all children `creating`, each on the parent's present chain
  // and base.
  Status begin_fork(const ForkIntent& intent);
  // The same of paused machines, which have rows already and become `resuming`; the parent is a zygote of what they are saved
  // in.
  Status begin_resume(const ForkIntent& intent);
  // The monitor answered: when `swapped`, the parent's overlay became frozen and parent_next its writable one, and the children
  // stand on the frozen one too; else parent_next is doomed. Ends the operation. Applying it twice changes nothing.
  Status settle_fork(const std::string& operation_id, bool swapped);
  Status set_process(const std::string& id, int64_t pid, uint64_t pid_start, uint64_t ram_address, uint64_t ram_bytes,
                     uint32_t generation);
  // All or none of them.
  Status set_running(const std::vector<SandboxInfo>& infos);
  Status set_state(const std::string& id, SandboxState state);
  // The decision that its saved state is what counts from now on, and that it stands on nothing else.
  Status set_paused(const std::string& id, const std::string& snapshot_id);
  // Its process, overlays and bases go to a row of their own, and it becomes `resuming` without any: until it is running again
  // the aside is what counts.
  Status set_aside(const std::string& id, const std::string& aside_id);
  // Takes that back: it is `pausing`, with all that it had, and what it got meanwhile is nobody's.
  Status bring_back(const std::string& id, const std::string& aside_id);
  // The decision that it is over; what it owns stays known until release_machine().
  Status set_ended(const std::string& id, SandboxState state, const std::string& reason);
  // Its process is gone and its overlays are not used by it any more; the row stays.
  Status release_machine(const std::string& id);
  Status set_expiry(const std::string& id, std::optional<int64_t> expires_at_ns);
  // Of a paused one.
  Status set_time_left(const std::string& id, int64_t time_left_ns);
  Status set_idle(const std::string& id, uint64_t idle_seconds);
  Status set_labels(const std::string& id, const Labels& labels);
  Status delete_machine(const std::string& id);  // with its chain

  // A merged overlay on its way: a row that nobody uses yet. Requires: the thread that calls doom_unused() makes and uses it.
  Status add_merged(const std::string& id);
  // What this machine stands on from now on, beneath its writable overlay.
  Status set_frozen(const std::string& machine_id, const std::vector<std::string>& frozen);
  Status set_overlay_state(const std::string& id, OverlayState state);
  Status delete_overlay(const std::string& id);

  Result<std::vector<MachineRow>> machines();
  // Errors: kNotFound.
  Result<MachineRow> machine(const std::string& id);
  // Empty: none, or there is no such machine.
  Result<std::string> base_image(const std::string& machine_id);
  Result<MachineBases> bases(const std::string& machine_id);
  Result<std::vector<OverlayRow>> overlays();
  Result<std::vector<std::string>> chain(const std::string& machine_id);  // oldest first
  Result<std::vector<OverlayRow>> chain_rows(const std::string& machine_id);
  Result<std::vector<PendingFork>> pending_forks();
  // Overlays no machine uses any more, marked doomed now (a writable one of a lost machine too).
  Result<std::vector<std::string>> doom_unused();
  // Overlays frozen and not sealed yet.
  Result<std::vector<std::string>> unsealed();

 private:
  explicit Registry(SqlDatabase db) : db_(std::move(db)) {}
  Status create_schema();
  Status upgrade_from_1();
  Status upgrade_from_2();
  Status upgrade_from_3();
  Status insert_operation(const ForkIntent& intent);
  Status add_child(const ForkIntent& intent, size_t index);
  Status insert_machine(const MachineRow& row);
  Result<MachineRow> machine_locked(const std::string& id);
  Status move_chain(const std::string& from, const std::string& to);
  Status insert_overlay(const std::string& id, OverlayState state);
  Status append_chain(const std::string& machine_id, const std::string& overlay_id);
  Result<std::vector<std::string>> chain_locked(const std::string& machine_id);

  std::mutex mutex_;
  SqlDatabase db_;  // guarded by mutex_
};

}  // namespace ramet::host
