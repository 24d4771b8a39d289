// A snapshot of a running sandbox: everybody waits for one fork(2) of its monitor. The child never runs; its memory and the
// frozen overlays are the sandbox at that instant, and go into the store while it works on.
#include "base/log.h"
#include "host/crash_point.h"
#include "host/host_impl.h"
#include "host/ids.h"

namespace ramet::host {
namespace {
constexpr uint64_t kDefaultKeepSeconds = 7 * 86400;
constexpr Milliseconds kDropLimit{60'000};  // what is dirty is written first
}  // namespace

Result<std::unique_ptr<FrozenMachine>> HostImpl::freeze_machine(const Running& r, FrozenTasks* tasks) {
  TRY(fork_outcomes_->note_all_of(r.info.id));
  const ForkPending pending(*r.sandbox);
  // The copy shares its pages; what the sandbox rewrites meanwhile it has twice.
  TRY(Admission::check_family(r.machine->facts().pid, 1, cgroups_.family_memory_used(r.info.family_id).value_or(0),
                              cgroups_.family_memory_max(r.info.family_id).value_or(0)));
  TRY_ASSIGN(const Admission::Reservation room, admission_.reserve(kMachineOverheadBytes, uint64_t{1} << 20));
  const BirthUnderWay under_way(*this, r.info.family_id);  // the copy starts in the sandbox's leaf
  return FrozenMachine::make(*context_, r.info, *r.machine, tasks);
}

Result<SnapshotResult> HostImpl::snapshot(const std::string& id, const SnapshotOptions& options) {
  TRY(snapshots_->check_new_name(options.name));
  TRY_ASSIGN(const Running r, wake(id));
  const bool strict = options.strictness == ForkStrictness::kStrict;
  if (strict && options_.agent == AgentUse::kNone)
    return fail(ErrorKind::kUnsupported, "a strict snapshot needs an agent in the guest");
  if (options.drop_caches) {
    abi::Request drop;
    drop.mutable_drop_caches();
    TRY(guest_call(id, drop, deadline_after(kDropLimit)));
  }
  std::unique_ptr<FrozenMachine> frozen;
  {
    TRY_ASSIGN(const Turn turn, wait_turn(r));
    FrozenTasks tasks(*turn.running.machine, options_);
    TRY_ASSIGN(frozen, freeze_machine(turn.running, strict ? &tasks : nullptr));
  }
  TRY_ASSIGN(const MachineRow row, registry_->machine(id));
  SnapshotDetails details = details_of(r.info, row.template_digest);
  details.info.name = options.name;
  details.info.strict = strict;
  details.info.labels = options.labels;
  details.info.expires_at_ns = kept_until(options.keep_seconds.value_or(kDefaultKeepSeconds));
  TRY_ASSIGN(Snapshots::Stored stored, snapshots_->store(*frozen, std::move(details)));
  log_info("snapshot " + stored.result.info.id + " of sandbox " + id + ": " + std::to_string(stored.result.changed_pages) +
           " pages and " + std::to_string(stored.result.disk_chunks) + " chunks of disk changed, stored in " +
           std::to_string(static_cast<int64_t>(stored.result.timing.store_ms)) + " ms");
  return std::move(stored.result);
}

Result<std::vector<SnapshotInfo>> HostImpl::snapshots() { return snapshots_->list(); }

Result<SnapshotInfo> HostImpl::get_snapshot(const std::string& id_or_name) {
  TRY_ASSIGN(const SnapshotDetails details, snapshots_->find(id_or_name));
  return details.info;
}

Result<SnapshotInfo> HostImpl::patch_snapshot(const std::string& id_or_name, const SnapshotPatch& patch) {
  return snapshots_->update(id_or_name, patch);
}

Status HostImpl::remove_snapshot(const std::string& id_or_name) {
  TRY_ASSIGN(const SnapshotDetails details, snapshots_->find(id_or_name));
  TRY(snapshots_->remove(details.info.id));
  // Sandboxes that were started from it live on; nobody starts any more.
  zygotes_->retire_snapshot(details.info.id);
  slow_->post([this] { snapshots_->sweep(); });
  return {};
}

}  // namespace ramet::host
