// How sandboxes end: by request, by time, by their guest, by the death of their monitor. And what is cleaned up behind them.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "base/log.h"
#include "host/crash_point.h"
#include "host/host_impl.h"

namespace ramet::host {
namespace {

constexpr size_t kFailedKept = 200;

std::string reason_of(const MachineEnd& end) {
  if (end.reason == "poweroff") return "the guest powered itself off";
  if (end.reason == "reset") return "the guest reset itself";
  if (end.reason == "stopped") return "its monitor was stopped";
  if (end.reason == "died") return "its monitor died";
  return "its monitor ended: " + end.reason + (end.detail.empty() ? "" : " (" + end.detail + ")");
}

}  // namespace

Status HostImpl::remove(const std::string& id) {
  TRY_ASSIGN(const std::shared_ptr<Sandbox> s, settled(id, deadline_after(options_.wake_deadline)));
  {
    const std::lock_guard lock(s->mutex);
    const SandboxState state = s->info.state;
    if (state == SandboxState::kCreating || state == SandboxState::kPausing || state == SandboxState::kResuming)
      return fail(ErrorKind::kConflict, "sandbox '" + id + "' is " + state_name(state) + ": try again when it is done");
  }
  return end_sandbox(s, SandboxState::kGone, "removed");
}

Status HostImpl::end_sandbox(const std::shared_ptr<Sandbox>& s, SandboxState state, const std::string& reason) {
  SandboxInfo info;
  std::shared_ptr<Machine> machine;
  {
    const std::lock_guard lock(s->mutex);
    if (s->ending || s->info.state == SandboxState::kGone) return {};
    s->ending = true;
    info = s->info;
    machine = s->machine;
  }
  // The decision first: whatever happens to us now, the next daemon finishes it. But a registry in trouble keeps nothing alive.
  Status marked = registry_->set_ended(info.id, state, reason);
  if (!marked && marked.error().kind() == ErrorKind::kNoSpace) {
    drop_ballast();
    marked = registry_->set_ended(info.id, state, reason);
  }
  if (!marked) log_error("end of sandbox " + info.id + " cannot be noted: " + marked.error().message());
  crash_point("remove.marked");
  if (machine) {
    machine->kill();
    if (!machine->wait_end(deadline_after(Milliseconds(10'000)))) log_warn("sandbox " + info.id + ": its process does not end");
  }
  crash_point("remove.killed");
  {
    const std::lock_guard no_fork(s->fork_mutex);  // one under way fails now, and gives its children up
    evacuate_leaf(info.family_id, info.id);
    resources_.release(info.id, info.family_id, state == SandboxState::kFailed);
  }
  crash_point("remove.files");
  const Status released = registry_->release_machine(info.id);
  if (!released) log_error(released.error().to_string());
  {
    const std::lock_guard lock(s->mutex);
    s->info.state = state;
    s->info.state_reason = reason;
    s->machine.reset();
    s->ending = false;
  }
  if (state == SandboxState::kGone) forget_childless(info.id, reason);
  crash_point("remove.row");
  log_info("sandbox " + info.id + " " + state_name(state) + ": " + reason);
  context_->overlays_changed();
  return {};
}

void HostImpl::drop_ballast() { ::unlink(paths_.ballast().c_str()); }

void HostImpl::restore_ballast() {
  constexpr off_t kBytes = 8 << 20;
  const Result<UniqueFd> fd = open_file(paths_.ballast(), O_RDWR | O_CREAT, 0600);
  if (fd && ::fallocate(fd->get(), 0, 0, kBytes) < 0) drop_ballast();  // half of it would help nobody
}

void HostImpl::forget_childless(std::optional<std::string> id, const std::string& why) {
  while (id) {
    std::optional<std::string> parent;
    {
      std::shared_ptr<Sandbox> mine;
      bool has_child = false;
      for (const std::shared_ptr<Sandbox>& s : all_sandboxes()) {
        const std::lock_guard lock(s->mutex);
        if (s->info.id == *id && s->info.state == SandboxState::kGone) {
          mine = s;
          parent = s->info.parent_id;
        }
        has_child = has_child || s->info.parent_id == id;
      }
      if (!mine || has_child) return;
    }
    const Status gone = registry_->delete_machine(*id);
    if (!gone) log_error(gone.error().to_string());
    erase(*id, why);
    id = parent;
  }
}

void HostImpl::on_machine_end(const std::string& id) {
  if (janitor_) janitor_->post([this, id] { handle_machine_end(id); });
}

void HostImpl::handle_machine_end(const std::string& id) {
  if (zygotes_->on_machine_end(id)) return;
  std::shared_ptr<Sandbox> s;
  {
    const std::lock_guard lock(mutex_);
    const auto it = sandboxes_.find(id);
    if (it == sandboxes_.end()) return;
    s = it->second;
  }
  std::shared_ptr<Machine> machine;
  {
    const std::lock_guard lock(s->mutex);
    if (s->info.state != SandboxState::kRunning || s->ending) return;  // its creator or remover deals with it
    machine = s->machine;
    if (machine && !machine->end()) return;  // it was paused and resumed meanwhile: the end is of the one before
  }
  const MachineEnd end = machine && machine->end() ? *machine->end() : MachineEnd{"died", {}, false};
  const Status done = end_sandbox(s, end.clean ? SandboxState::kGone : SandboxState::kFailed, reason_of(end));
  if (!done) log_error(done.error().to_string());
}

void HostImpl::tick() {
  if (fork_outcomes_->try_again() != 0) context_->overlays_changed();
  end_expired();
  pause_idle();
  drop_oldest_failed();
  zygotes_->retire_idle_snapshots(MonotonicClock::now() - options_.idle_zygote);
  if (MonotonicClock::now() >= next_stray_check_) {
    next_stray_check_ = deadline_after(options_.stray_interval);
    kill_strays();
  }
  janitor_->post_at(deadline_after(options_.janitor_interval), [this] { tick(); });
}

void HostImpl::end_expired() {
  const int64_t now = wall_ns();
  for (const std::shared_ptr<Sandbox>& s : all_sandboxes()) {
    {
      const std::lock_guard lock(s->mutex);
      const bool due = s->info.expires_at_ns && *s->info.expires_at_ns <= now;
      if (!due || s->ending || (s->info.state != SandboxState::kRunning && s->info.state != SandboxState::kFailed)) continue;
    }
    const Status done = end_sandbox(s, SandboxState::kGone, "its time was over");
    if (!done) log_error(done.error().to_string());
  }
}

void HostImpl::drop_oldest_failed() {
  std::vector<std::pair<int64_t, std::shared_ptr<Sandbox>>> failed;
  for (const std::shared_ptr<Sandbox>& s : all_sandboxes()) {
    const std::lock_guard lock(s->mutex);
    if (s->info.state == SandboxState::kFailed && !s->ending) failed.emplace_back(s->info.created_at_ns, s);
  }
  if (failed.size() <= kFailedKept) return;
  std::sort(failed.begin(), failed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < failed.size() - kFailedKept; i++)
    (void)end_sandbox(failed[i].second, SandboxState::kGone,
                      "dropped, because only the last " + std::to_string(kFailedKept) + " failed ones are kept")
        .has_value();
}

void HostImpl::evacuate_leaf(const std::string& family, const std::string& id) {
  const std::vector<pid_t> members = cgroups_.members(family, id);
  if (members.empty()) return;
  for (const std::shared_ptr<Sandbox>& s : all_sandboxes()) {
    const std::lock_guard lock(s->mutex);
    if (!s->machine || s->info.id == id) continue;
    const pid_t pid = s->machine->facts().pid;
    if (std::find(members.begin(), members.end(), pid) != members.end())
      (void)cgroups_.move(s->info.family_id, s->info.id, pid).has_value();
  }
}

HostImpl::BirthUnderWay::BirthUnderWay(HostImpl& host, const std::string& family) : host_(host), family_(family) {
  const std::lock_guard lock(host_.births_mutex_);
  host_.births_under_way_.insert(family_);
}

HostImpl::BirthUnderWay::~BirthUnderWay() {
  const std::lock_guard lock(host_.births_mutex_);
  host_.births_under_way_.erase(host_.births_under_way_.find(family_));
}

// A process in one of our leaves that no row knows, seen three times: a child whose birth failed and that did not end by
// itself.
void HostImpl::kill_strays() {
  std::multiset<std::string> births;  // before the rows: what is born meanwhile is unknown this once, and not the next time
  {
    const std::lock_guard lock(births_mutex_);
    births = births_under_way_;
  }
  // In this order too: a leaf that is there now had its row before.
  const std::vector<std::pair<std::string, std::string>> leaves = cgroups_.leaves();
  const Result<std::vector<MachineRow>> rows = registry_->machines();
  if (!rows) return;
  std::set<pid_t> known;
  std::set<std::string> ids;
  for (const MachineRow& r : *rows) {
    known.insert(static_cast<pid_t>(r.pid));
    ids.insert(r.info.id);
  }
  std::map<pid_t, int> seen;
  for (const auto& [family, leaf] : leaves) {
    if (births.count(family)) continue;
    const std::vector<pid_t> members = cgroups_.members(family, leaf);
    for (const pid_t pid : members) {
      if (known.count(pid) || pid == 0) continue;
      const Result<UniqueFd> pidfd = open_pidfd(pid);  // held before the decision: the number cannot change its meaning
      const std::optional<bool> ours = cgroups_.contains(family, pid);
      if (!pidfd || !ours || !*ours) continue;
      const int times = stray_sightings_.count(pid) ? stray_sightings_[pid] + 1 : 1;
      seen[pid] = times;
      if (times < 3) continue;
      log_warn("process " + std::to_string(pid) + " in " + family + "/" + leaf + " belongs to no sandbox and is killed");
      (void)signal_pidfd(pidfd->get(), 9);
    }
    if (members.empty() && !ids.count(leaf)) (void)cgroups_.remove_leaf(family, leaf).has_value();
  }
  stray_sightings_ = std::move(seen);
}

void HostImpl::tend_overlays() {
  const Result<std::vector<std::string>> doomed = registry_->doom_unused();
  if (!doomed) log_warn(doomed.error().to_string());
  for (const std::string& id : doomed ? *doomed : std::vector<std::string>()) {
    Status gone = overlays_.remove(id);
    if (gone) gone = registry_->delete_overlay(id);
    if (!gone) log_warn("overlay " + id + " cannot be deleted: " + gone.error().message());
  }
  const Result<std::vector<std::string>> frozen = registry_->unsealed();
  if (!frozen) log_warn(frozen.error().to_string());
  for (const std::string& id : frozen ? *frozen : std::vector<std::string>()) {
    const Result<bool> sealed = overlays_.seal(id);
    if (sealed)
      (void)registry_->set_overlay_state(id, OverlayState::kSealed).has_value();
    else
      log_warn("overlay " + id + " cannot be sealed: " + sealed.error().message());
  }
  shorten_chains();
  restore_ballast();
}

}  // namespace ramet::host
