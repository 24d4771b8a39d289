// A live fork: all that can be prepared is prepared while the parent runs; then freeze, fork, thaw, and only then the rest.
#include <algorithm>

#include "base/log.h"
#include "host/agent_client.h"
#include "host/crash_point.h"
#include "host/frozen_tasks.h"
#include "host/host_impl.h"
#include "host/ids.h"

namespace ramet::host {
namespace {

constexpr size_t kFinishThreads = 16;
constexpr uint32_t kQuiesceMs = 2000;

}  // namespace

Result<ForkResult> HostImpl::fork(const std::string& id, const ForkOptions& options) {
  const int64_t begin = monotonic_ns();
  if (options.count < 1 || options.count > options_.max_fork_children)
    return fail(ErrorKind::kInvalid, std::to_string(options.count) + " children in one fork, this host allows 1 to " +
                                         std::to_string(options_.max_fork_children));
  TRY_ASSIGN(const RunningOrPaused parent_or_paused, running_or_paused(id));
  if (const auto* paused = std::get_if<std::shared_ptr<Sandbox>>(&parent_or_paused))
    return fork_paused(*paused, options, begin);
  const Running& seen = std::get<Running>(parent_or_paused);
  if (seen.info.depth + 1 > options_.max_depth)
    return fail(ErrorKind::kConflict, "sandbox '" + id + "' is " + std::to_string(seen.info.depth) +
                                          " forks deep, the limit is " + std::to_string(options_.max_depth));
  if (options.strictness == ForkStrictness::kStrict && options_.agent == AgentUse::kNone)
    return fail(ErrorKind::kUnsupported, "a strict fork needs an agent in the guest");
  TRY(check_room_for(options.count));
  TRY_ASSIGN(const Turn turn, wait_turn(seen));
  const Running& parent = turn.running;
  TRY(fork_outcomes_->note_all_of(id));
  const ForkPending pending(*parent.sandbox);

  // Room: for what the children may come to own soon, on the host and in the family.
  const pid_t parent_pid = parent.machine->facts().pid;
  TRY(Admission::check_family(parent_pid, options.count, cgroups_.family_memory_used(parent.info.family_id).value_or(0),
                              cgroups_.family_memory_max(parent.info.family_id).value_or(0)));
  TRY_ASSIGN(const Admission::Reservation room,
             admission_.reserve(anonymous_bytes(parent_pid) + options.count * 2 * kMachineOverheadBytes,
                                options.count * (uint64_t{1} << 20)));

  const BirthUnderWay under_way(*this, parent.info.family_id);

  // Intent, then resources.
  const bool strict = options.strictness == ForkStrictness::kStrict;
  std::vector<Birth> births(options.count);
  ForkIntent intent;
  intent.id = new_id("op");
  intent.parent = id;
  intent.parent_next = new_id("ov");
  const std::shared_ptr<MemoryFiller> filler = parent.machine->filler();  // one answer for all
  for (Birth& b : births) {
    SandboxInfo& info = b.row.info;
    info = parent.info;
    info.id = new_id("sb");
    info.state = SandboxState::kCreating;
    info.parent_id = id;
    info.depth = parent.info.depth + 1;
    info.created_at_ns = wall_ns();
    info.expires_at_ns = expiry(options.ttl_seconds);
    if (options.labels) info.labels = *options.labels;
    info.timing = {};
    b.overlay = new_id("ov");
    b.filler = filler;
    b.requested_at_ns = begin;
    intent.children.push_back(b.row);
    intent.child_overlays.push_back(b.overlay);
  }
  TRY(registry_->begin_fork(intent));
  crash_point("fork.journalled");
  for (const Birth& b : births) insert(b.row.info);
  // Unless told otherwise the parent did not move to its next overlay.
  const auto give_up = [&](Error error, bool swapped) -> Result<ForkResult> {
    (void)fork_outcomes_->note(intent, swapped).has_value();  // kept if it fails
    for (Birth& b : births) {
      undo_birth(*context_, b);
      erase(b.row.info.id, {});
    }
    return tl::unexpected<Error>(std::move(error).with_context("fork of sandbox '" + id + "'"));
  };
  Result<OverlayFiles> next = overlays_.create(intent.parent_next);
  if (!next) return give_up(std::move(next).error(), false);
  for (Birth& b : births)
    if (Status prepared = prepare_birth(*context_, b, strict ? BirthStart::kOnCommit : BirthStart::kAtOnce); !prepared)
      return give_up(std::move(prepared).error(), false);
  crash_point("fork.files");

  FdsToSend fds;
  vmm::Request request;
  vmm::Fork& f = *request.mutable_fork();
  f.set_quiesce_deadline_ms(kQuiesceMs);
  for (const Birth& b : births) {
    vmm::ForkChild& child = *f.add_children();
    child.set_sandbox_id(b.row.info.id);
    child.set_bootstrap_fd(fds.add(b.bootstrap.theirs.get()));
  }
  vmm::DiskSetup& disk = *f.add_parent_disks();
  disk.set_id("vda");
  add_overlay(*disk.mutable_writable(), fds, *next);

  // ---- the parent stands still from here ----
  ForkResult result;
  FrozenTasks frozen(*parent.machine, options_);
  if (strict) {
    if (Status done = frozen.freeze(); !done) return give_up(std::move(done).error(), false);
    result.timing.freeze_ms = ms_between(frozen.began_ns(), monotonic_ns());
    crash_point("fork.frozen");
  }
  const int64_t requested = monotonic_ns();
  for (Birth& b : births) b.fork_requested_at_ns = requested;
  Result<MonitorReply> reply =
      parent.machine->call(std::move(request), fds, deadline_after(Milliseconds(kQuiesceMs) + options_.agent_deadline));
  result.timing.fork_ms = ms_between(requested, monotonic_ns());
  if (strict) frozen.send_thaw();
  // ---- and runs again from here ----
  crash_point("fork.forked");
  next = fail(ErrorKind::kInternal, "");  // our descriptors of its overlay go
  const bool answered = reply && reply->response.has_forked();
  bool swapped = false;
  if (answered)
    for (const std::string& d : reply->response.forked().frozen_disks()) swapped = swapped || d == "vda";
  else
    swapped = process_has_open(parent_pid, paths_.overlay_data(intent.parent_next));  // it did not say, so look
  if (!answered || reply->response.forked().children_size() != static_cast<int>(births.size())) {
    if (strict) frozen.confirm_thaw();
    Error error = reply ? Error(ErrorKind::kCorrupt, "the monitor answered Fork with something else") : reply.error();
    return give_up(std::move(error), swapped);
  }
  if (Status settled = fork_outcomes_->note(intent, swapped); !settled) {
    if (strict) frozen.confirm_thaw();
    return give_up(std::move(settled).error(), swapped);
  }
  crash_point("fork.chain");
  const vmm::Forked& forked = reply->response.forked();
  result.timing.vcpu_stop_ms = ms_between(forked.stopped_at_ns(), forked.resumed_at_ns());

  std::vector<Result<UniqueFd>> pidfds;
  for (size_t i = 0; i < births.size(); i++) {
    const vmm::ForkedChild& c = forked.children(static_cast<int>(i));
    if (c.has_failure())
      pidfds.emplace_back(tl::unexpected<Error>(error_of(c.failure())));
    else
      pidfds.push_back(reply->fds.take(c.pidfd(), "pidfd"));
  }
  // The parent goes on first: the children's guests wait for Commit, so on a busy host they do not take the CPU from its thaw.
  if (strict && !frozen.confirm_thaw())
    log_warn("sandbox " + id + " did not confirm its thaw after a fork; its agent thaws by itself");
  run_parallel(births.size(), kFinishThreads, [&](size_t i) {
    if (!pidfds[i])
      births[i].error = pidfds[i].error();
    else
      finish_birth(*context_, births[i], std::move(*pidfds[i]), options.strictness, BirthKind::kFork);
  });
  result.timing.parent_pause_ms = strict ? frozen.pause_ms() : result.timing.vcpu_stop_ms;

  std::vector<Birth*> good;
  for (size_t i = 0; i < births.size(); i++) {
    if (births[i].error)
      result.failed.push_back({static_cast<uint32_t>(i), *births[i].error});
    else
      good.push_back(&births[i]);
  }
  if (!result.failed.empty() && (options.mode == ForkMode::kAll || good.empty())) {
    const ForkFailure& first = result.failed.front();
    Error error =
        Error(first.error).with_context("child " + std::to_string(first.index) + " of " + std::to_string(births.size()));
    return give_up(std::move(error), swapped);
  }
  if (Status published = publish(good); !published) return give_up(std::move(published).error(), swapped);
  crash_point("fork.running");
  for (Birth& b : births) {
    if (!b.error) continue;
    undo_birth(*context_, b);
    erase(b.row.info.id, {});
  }
  for (const Birth* b : good) {
    result.children.push_back(b->row.info);
    result.timing.ready_ms.push_back(b->ready_ms);
  }
  context_->overlays_changed();
  return result;
}

}  // namespace ramet::host
