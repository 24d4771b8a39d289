// Pause: the machine stands still, a snapshot of it is stored, its process ends. Resume: a zygote of that snapshot, and a fork
// of it under the old id. A pause that fails leaves the sandbox running, a resume that fails leaves it paused: at each step one
// of the two is whole, and the row says which one counts.
#include "base/log.h"
#include "host/agent_client.h"
#include "host/crash_point.h"
#include "host/host_impl.h"
#include "host/ids.h"

namespace ramet::host {
namespace {

constexpr Milliseconds kStopLimit{5000};
constexpr Milliseconds kEndLimit{10'000};

}  // namespace

Status HostImpl::stop_running(Machine& machine) {
  vmm::Request request;
  request.mutable_pause();
  TRY(machine.call(std::move(request), {}, deadline_after(kStopLimit)));
  return {};
}

Status HostImpl::run_on(Machine& machine) {
  vmm::Request request;
  request.mutable_resume();
  const Result<MonitorReply> running = machine.call(std::move(request), {}, deadline_after(kStopLimit));
  // A conflict: it was not stopped yet.
  if (running || running.error().kind() == ErrorKind::kConflict) return {};
  return tl::unexpected<Error>(running.error());
}

void HostImpl::set_state(Sandbox& s, SandboxState state) {
  {
    const std::lock_guard lock(s.mutex);
    s.info.state = state;
  }
  s.changed.notify_all();
}

Result<Snapshots::Stored> HostImpl::stop_and_store(const Running& r) {
  FrozenTasks tasks(*r.machine, options_);
  // There is one of it before and after: a task that does not stand still in time is no reason to fail. Copies that are started
  // from its saved state are loose then.
  const bool strict = options_.agent == AgentUse::kRequired && tasks.freeze();
  TRY_ASSIGN(const MachineRow row, registry_->machine(r.info.id));
  SnapshotDetails details = details_of(r.info, row.template_digest);
  details.info.strict = strict;
  details.paused = r.info.id;
  details.working_set = r.machine->touched_chunks();  // what it waited for last time
  if (row.info.expires_at_ns) details.time_left_ns = std::max<int64_t>(*row.info.expires_at_ns - wall_ns(), 1);

  TRY(stop_running(*r.machine));
  crash_point("pause.stopped");
  const auto store = [&]() -> Result<Snapshots::Stored> {
    TRY_ASSIGN(const std::unique_ptr<FrozenMachine> frozen, freeze_machine(r, nullptr));
    return snapshots_->store(*frozen, std::move(details));
  };
  Result<Snapshots::Stored> stored = store();
  const Status noted = stored ? registry_->set_paused(r.info.id, stored->result.info.id) : Status();
  if (stored && noted) {
    tasks.leave_frozen();
    return stored;
  }
  if (const Status on = run_on(*r.machine); !on) log_warn("sandbox " + r.info.id + " does not go on: " + on.error().message());
  if (!noted) return tl::unexpected<Error>(noted.error());
  return stored;
}

Result<SandboxInfo> HostImpl::pause(const std::string& id) {
  TRY_ASSIGN(const Running r, find_running(id));
  return pause_if(r, [](const Sandbox&) { return true; });
}

Result<SandboxInfo> HostImpl::pause_if(const Running& seen, const StillWanted& wanted) {
  TRY_ASSIGN(const Turn turn, wait_turn(seen));
  const Running& r = turn.running;
  const std::string& id = r.info.id;
  {
    const std::lock_guard lock(r.sandbox->mutex);
    TRY(running_of(r.sandbox));  // it may have ended while we waited
    if (!wanted(*r.sandbox)) return r.sandbox->info;
    r.sandbox->info.state = SandboxState::kPausing;
  }
  const Status marked = registry_->set_state(id, SandboxState::kPausing);
  crash_point("pause.marked");
  const Result<Snapshots::Stored> stored =
      marked ? stop_and_store(r) : Result<Snapshots::Stored>(tl::unexpected<Error>(marked.error()));
  if (!stored) {
    const Status back = registry_->set_state(id, SandboxState::kRunning);
    if (!back) log_error(back.error().to_string());
    set_state(*r.sandbox, SandboxState::kRunning);
    if (!r.machine->alive()) on_machine_end(id);  // it died meanwhile
    return tl::unexpected<Error>(Error(stored.error()).with_context("pause of sandbox '" + id + "', which goes on"));
  }
  crash_point("pause.saved");
  r.machine->kill();
  if (!r.machine->wait_end(deadline_after(kEndLimit))) log_warn("sandbox " + id + ": its process does not end");
  give_back(r.info);
  crash_point("pause.released");
  {
    const std::lock_guard lock(r.sandbox->mutex);
    r.sandbox->machine.reset();
    r.sandbox->info.state = SandboxState::kPaused;
    r.sandbox->info.expires_at_ns.reset();
  }
  r.sandbox->changed.notify_all();
  log_info("sandbox " + id + " paused in snapshot " + stored->result.info.id);
  slow_->post([this] { snapshots_->sweep(); });  // the state that it was paused in before
  return get(id);
}

// What a paused sandbox does not need: all but its row and its console.
void HostImpl::give_back(const SandboxInfo& info) {
  evacuate_leaf(info.family_id, info.id);
  resources_.release(info.id, info.family_id, true);
  for (const Status& done : {registry_->set_expiry(info.id, std::nullopt), registry_->release_machine(info.id)})
    if (!done) log_error(done.error().to_string());
  context_->overlays_changed();
}

Result<SandboxInfo> HostImpl::resume(const std::string& id) {
  const int64_t begin = monotonic_ns();
  TRY_ASSIGN(const std::shared_ptr<Sandbox> s, find(id));
  {
    std::unique_lock lock(s->mutex);
    // One that pauses by itself just now is as good as paused.
    s->changed.wait_until(lock, deadline_after(options_.wake_deadline),
                          [&] { return s->info.state != SandboxState::kPausing; });
    if (s->info.state != SandboxState::kPaused || s->ending)
      return fail(ErrorKind::kConflict,
                  "sandbox '" + id + "' is " + (s->ending ? "ending" : state_name(s->info.state)) + ", not paused");
    s->info.state = SandboxState::kResuming;
  }
  const std::lock_guard one_at_a_time(s->fork_mutex);
  const Status resumed = resume_from_saved(s, begin);
  if (!resumed) {
    set_state(*s, SandboxState::kPaused);
    return tl::unexpected<Error>(Error(resumed.error()).with_context("resume of sandbox '" + id + "', which stays paused"));
  }
  s->changed.notify_all();
  return get(id);
}

Status HostImpl::resume_from_saved(const std::shared_ptr<Sandbox>& s, int64_t begin) {
  SandboxInfo info;
  {
    const std::lock_guard lock(s->mutex);
    info = s->info;
  }
  TRY(check_room_for(1));
  TRY_ASSIGN(const MachineRow row, registry_->machine(info.id));
  TRY_ASSIGN(const SnapshotDetails saved, snapshots_->find(row.saved));
  const ForkStrictness tasks = saved.info.strict ? ForkStrictness::kStrict : ForkStrictness::kLoose;
  const auto acquire = [&] { return zygotes_->acquire_snapshot(row.saved, [&] { return snapshots_->load(row.saved); }); };
  const auto start = [&](const Zygotes::Zygote& zygote) -> Result<SandboxInfo> {
    Birth birth;
    birth.row = row;
    birth.row.info.timing = {};
    birth.row.info.timing.template_boot_ms = zygote.boot_ms;
    birth.row.info.expires_at_ns.reset();
    const int64_t time_left_ns = row.time_left_ns.value_or(saved.time_left_ns);
    if (time_left_ns != 0) birth.row.info.expires_at_ns = wall_ns() + time_left_ns;
    birth.requested_at_ns = begin;
    TRY(registry_->set_expiry(info.id, birth.row.info.expires_at_ns));
    TRY(bring_to_life(zygote, birth, tasks, Origin::kPaused));
    return birth.row.info;
  };
  TRY(from_zygote(acquire, start));
  crash_point("resume.running");
  // Its only child has left it; the next pause makes another state.
  slow_->post([this, id = row.saved] { zygotes_->retire_snapshot(id); });
  return {};
}

Result<ForkResult> HostImpl::fork_paused(const std::shared_ptr<Sandbox>& s, const ForkOptions& options, int64_t begin) {
  const std::lock_guard one_at_a_time(s->fork_mutex);  // it stays paused meanwhile
  SandboxInfo parent;
  {
    const std::lock_guard lock(s->mutex);
    if (s->info.state != SandboxState::kPaused || s->ending)
      return fail(ErrorKind::kConflict, "sandbox '" + s->info.id + "' is not paused any more");
    parent = s->info;
  }
  TRY(check_room_for(options.count));
  TRY_ASSIGN(const MachineRow row, registry_->machine(parent.id));
  TRY_ASSIGN(const SnapshotDetails saved, snapshots_->find(row.saved));
  if (options.strictness == ForkStrictness::kStrict && !saved.info.strict && options_.agent == AgentUse::kRequired)
    return fail(ErrorKind::kNotQuiescent, "sandbox '" + parent.id +
                                              "' was paused while a task of it did not stand still: its copies "
                                              "would share random numbers; resume it, or fork it with strict off");
  CreateOptions create;
  create.ttl_seconds = options.ttl_seconds;
  create.labels = options.labels.value_or(parent.labels);
  create.env = parent.env;
  create.idle_seconds = parent.idle_seconds;
  ForkResult result;
  for (uint32_t i = 0; i < options.count; i++) {
    Result<SandboxInfo> child = create_from_snapshot(saved, create, begin, &parent);
    if (child) {
      result.timing.ready_ms.push_back(child->timing.total_ms);
      result.children.push_back(*std::move(child));
      continue;
    }
    result.failed.push_back({i, child.error()});
    if (options.mode == ForkMode::kPartial) continue;
    for (const SandboxInfo& started : result.children) (void)remove(started.id).has_value();
    return tl::unexpected<Error>(
        Error(child.error()).with_context("child " + std::to_string(i) + " of " + std::to_string(options.count)));
  }
  if (result.children.empty()) return tl::unexpected<Error>(result.failed.front().error);
  return result;
}

Result<std::shared_ptr<Sandbox>> HostImpl::settled(const std::string& id, Deadline deadline) {
  TRY_ASSIGN(std::shared_ptr<Sandbox> s, find(id));
  std::unique_lock lock(s->mutex);
  const bool settled = s->changed.wait_until(
      lock, deadline, [&] { return s->info.state != SandboxState::kPausing && s->info.state != SandboxState::kResuming; });
  if (!settled) return fail(ErrorKind::kTimeout, "sandbox '" + id + "' is still " + state_name(s->info.state));
  return s;
}

Result<HostImpl::Running> HostImpl::wake(const std::string& id) {
  const Deadline deadline = deadline_after(options_.wake_deadline);
  for (;;) {
    TRY_ASSIGN(const std::shared_ptr<Sandbox> s, settled(id, deadline));
    {
      const std::lock_guard lock(s->mutex);
      const SandboxState state = s->info.state;
      if (state == SandboxState::kPausing || state == SandboxState::kResuming) continue;
      if (state != SandboxState::kPaused) {
        TRY_ASSIGN(Running running, running_of(s));
        running.use = begin_use(s);
        return running;
      }
    }
    const Result<SandboxInfo> resumed = resume(id);
    if (resumed || (resumed.error().kind() == ErrorKind::kConflict && MonotonicClock::now() < deadline)) continue;
    return tl::unexpected<Error>(resumed.error());
  }
}

}  // namespace ramet::host
