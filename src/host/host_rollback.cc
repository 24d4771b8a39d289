// Rollback: the machine of a sandbox is replaced by one of a snapshot; id, labels, place in the tree and time to live stay.
//
//   running:  zygote of the snapshot up ── vCPUs stopped ── process, overlays, bases to a row of their own (`aside`), socket
//             renamed ── fork of the zygote under the old id ── row `running`: decided ── the old process ends, its row goes
//   paused:   a resume from another saved state than its own, which counts until the row is `running`
//
// Until the decision the old machine is whole and only stands still; whatever fails, here or in the daemon, brings it back.
#include <cerrno>
#include <cstdio>

#include "base/log.h"
#include "host/crash_point.h"
#include "host/host_impl.h"
#include "host/ids.h"

namespace ramet::host {
namespace {

std::string size_of(uint32_t vcpus, uint64_t memory_mib, uint64_t disk_bytes) {
  return std::to_string(vcpus) + " vCPUs, " + std::to_string(memory_mib) + " MiB of memory and " + std::to_string(disk_bytes) +
         " bytes of disk";
}

Status check_fits(const SandboxInfo& s, const SnapshotInfo& to) {
  if (s.vcpus == to.vcpus && s.memory_mib == to.memory_mib && s.disk_bytes == to.disk_bytes) return {};
  return fail(ErrorKind::kInvalid, "snapshot '" + to.id + "' is of " + size_of(to.vcpus, to.memory_mib, to.disk_bytes) +
                                       ", sandbox '" + s.id + "' has " + size_of(s.vcpus, s.memory_mib, s.disk_bytes));
}

ForkStrictness tasks_of(const SnapshotDetails& snapshot) {
  return snapshot.info.strict ? ForkStrictness::kStrict : ForkStrictness::kLoose;
}

}  // namespace

Result<SandboxInfo> HostImpl::rollback(const std::string& id, const std::string& snapshot) {
  const int64_t begin = monotonic_ns();
  TRY_ASSIGN(const SnapshotDetails to, snapshots_->find(snapshot));
  if (!to.paused.empty() && to.paused != id)
    return fail(ErrorKind::kConflict, "snapshot '" + to.info.id + "' is what sandbox '" + to.paused + "' is paused in");
  TRY_ASSIGN(const SandboxInfo info, get(id));
  TRY(check_fits(info, to.info));
  const auto acquire = [&] { return zygotes_->acquire_snapshot(to.info.id, [&] { return snapshots_->load(to.info.id); }); };
  const auto start = [&](const Zygotes::Zygote& zygote) -> Result<SandboxInfo> {
    TRY_ASSIGN(const RunningOrPaused now, running_or_paused(id));
    if (const auto* running = std::get_if<Running>(&now)) return roll_back_running(*running, zygote, to, begin);
    return roll_back_paused(std::get<std::shared_ptr<Sandbox>>(now), zygote, to, begin);
  };
  Result<SandboxInfo> done = from_zygote(acquire, start);
  if (!done)
    return tl::unexpected<Error>(Error(done.error()).with_context("rollback of sandbox '" + id + "', which is as it was"));
  log_info("sandbox " + id + " is back in snapshot " + to.info.id);
  return done;
}

Birth HostImpl::reborn(const MachineRow& row, const Zygotes::Zygote& zygote, int64_t begin) {
  Birth birth;
  birth.row = row;
  birth.row.info.timing = {};
  birth.row.info.timing.template_boot_ms = zygote.boot_ms;
  birth.requested_at_ns = begin;
  return birth;
}

Result<SandboxInfo> HostImpl::roll_back_paused(const std::shared_ptr<Sandbox>& s, const Zygotes::Zygote& zygote,
                                               const SnapshotDetails& to, int64_t begin) {
  const std::lock_guard one_at_a_time(s->fork_mutex);
  std::string id;
  {
    const std::lock_guard lock(s->mutex);
    id = s->info.id;
    if (s->info.state != SandboxState::kPaused || s->ending)
      return fail(ErrorKind::kConflict, "sandbox '" + id + "' is not paused any more");
    s->info.state = SandboxState::kResuming;
  }
  const auto replace = [&]() -> Status {
    TRY(check_room_for(1));
    TRY_ASSIGN(const MachineRow row, registry_->machine(id));
    TRY_ASSIGN(const SnapshotDetails saved, snapshots_->find(row.saved));
    Birth birth = reborn(row, zygote, begin);
    const int64_t time_left_ns = row.time_left_ns.value_or(saved.time_left_ns);
    if (time_left_ns != 0) birth.row.info.expires_at_ns = wall_ns() + time_left_ns;
    TRY(registry_->set_expiry(id, birth.row.info.expires_at_ns));
    return bring_to_life(zygote, birth, tasks_of(to), Origin::kPaused);
  };
  if (const Status done = replace(); !done) {
    set_state(*s, SandboxState::kPaused);
    return tl::unexpected<Error>(done.error());
  }
  s->changed.notify_all();
  slow_->post([this] { snapshots_->sweep(); });  // the state that it was paused in
  return get(id);
}

Result<SandboxInfo> HostImpl::roll_back_running(const Running& r, const Zygotes::Zygote& zygote, const SnapshotDetails& to,
                                                int64_t begin) {
  const std::string &id = r.info.id, aside_id = new_id("as");
  const std::lock_guard one_at_a_time(r.sandbox->fork_mutex);
  {
    const std::lock_guard lock(r.sandbox->mutex);
    TRY_ASSIGN(const Running now, running_of(r.sandbox));  // it may have ended while we waited
    if (now.machine != r.machine) return fail(ErrorKind::kConflict, "sandbox '" + id + "' was rolled back meanwhile");
    r.sandbox->info.state = SandboxState::kResuming;
  }
  const auto replace = [&]() -> Status {
    TRY(put_aside(r, aside_id));
    TRY_ASSIGN(const MachineRow row, registry_->machine(id));
    Birth birth = reborn(row, zygote, begin);
    return bring_to_life(zygote, birth, tasks_of(to), Origin::kAside);
  };
  if (const Status done = replace(); !done) {
    take_back(r, aside_id);
    return tl::unexpected<Error>(done.error());
  }
  crash_point("rollback.running");
  r.sandbox->changed.notify_all();
  dismantle(*context_, aside_id, r.info.family_id, r.machine);
  crash_point("rollback.released");
  return get(id);
}

Status HostImpl::put_aside(const Running& r, const std::string& aside_id) {
  const std::string& id = r.info.id;
  const std::lock_guard for_the_monitor(r.machine->fork_lock());
  TRY(fork_outcomes_->note_all_of(id));
  TRY(registry_->set_state(id, SandboxState::kPausing));
  crash_point("rollback.marked");
  TRY(stop_running(*r.machine));
  crash_point("rollback.stopped");
  TRY(registry_->set_aside(id, aside_id));
  crash_point("rollback.aside");
  if (::rename(paths_.socket(id).c_str(), paths_.socket(aside_id).c_str()) < 0) return fail_errno("rename its socket");
  crash_point("rollback.moved");
  return {};
}

// From wherever put_aside(), or what came after it, failed. While the registry cannot note it the aside counts for the next
// daemon.
void HostImpl::take_back(const Running& r, const std::string& aside_id) {
  const std::string& id = r.info.id;
  Status noted;
  if (registry_->machine(aside_id)) {
    noted = registry_->bring_back(id, aside_id);
    if (!noted && noted.error().kind() == ErrorKind::kNoSpace) {
      drop_ballast();
      noted = registry_->bring_back(id, aside_id);
    }
    restore_socket(id, aside_id);
    context_->overlays_changed();
  }
  if (const Status on = run_on(*r.machine); !on) log_warn("sandbox " + id + " does not go on: " + on.error().message());
  if (noted) noted = registry_->set_state(id, SandboxState::kRunning);
  if (!noted) log_error(noted.error().to_string());
  set_state(*r.sandbox, SandboxState::kRunning);
  if (!r.machine->alive()) on_machine_end(id);  // it died meanwhile
}

void HostImpl::restore_socket(const std::string& id, const std::string& aside_id) {
  if (::rename(paths_.socket(aside_id).c_str(), paths_.socket(id).c_str()) < 0 && errno != ENOENT)
    log_error("socket of " + id + " does not have its name: error " + std::to_string(errno));
}

}  // namespace ramet::host
