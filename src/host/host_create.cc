// Create = fork of the template's zygote. What is shared with a live fork (births, publishing) is here too.
#include "base/log.h"
#include "host/crash_point.h"
#include "host/host_impl.h"
#include "host/ids.h"

namespace ramet::host {

Status HostImpl::check_room_for(uint32_t count) {
  size_t live = 0;
  for (const std::shared_ptr<Sandbox>& s : all_sandboxes()) {
    const std::lock_guard lock(s->mutex);
    if (s->info.state == SandboxState::kCreating || s->info.state == SandboxState::kRunning) live++;
  }
  if (live + count <= options_.max_sandboxes) return {};
  return fail(ErrorKind::kNoSpace, std::to_string(live) + " sandboxes exist and " + std::to_string(count) +
                                       " more are wanted, the limit of this host is " + std::to_string(options_.max_sandboxes));
}

Status HostImpl::publish(std::vector<Birth*> births) {
  std::vector<SandboxInfo> infos;
  for (Birth* b : births) {
    b->row.info.state = SandboxState::kRunning;
    infos.push_back(b->row.info);
  }
  TRY(registry_->set_running(infos));
  for (Birth* b : births) {
    const std::string& id = b->row.info.id;
    const Result<std::shared_ptr<Sandbox>> s = find(id);
    if (!s) continue;
    {
      const std::lock_guard lock((*s)->mutex);
      (*s)->info = b->row.info;
      (*s)->machine = b->machine;
      (*s)->used_at = MonotonicClock::now();
    }
    if (!b->machine->alive()) on_machine_end(id);  // it died between the agent's answer and the line above
    // Moving a process between cgroups can take tens of milliseconds: nobody waits for it.
    slow_->post([this, machine = b->machine, family = b->row.info.family_id, id] {
      const Status moved = cgroups_.move(family, id, machine->facts().pid);
      if (!moved && machine->alive()) log_warn(moved.error().to_string());
    });
  }
  return {};
}

Result<SandboxInfo> HostImpl::create(const CreateOptions& options) {
  const int64_t begin = monotonic_ns();
  TRY(check_room_for(1));
  if (!options.snapshot.empty()) {
    if (!options.template_name.empty() || options.vcpus || options.memory_mib)
      return fail(ErrorKind::kInvalid, "a sandbox from a snapshot is as large as that: no template, vCPUs or memory beside it");
    TRY_ASSIGN(const SnapshotDetails from, snapshots_->find(options.snapshot));
    return create_from_snapshot(from, options, begin, nullptr);
  }
  TRY(check_template_name(options.template_name));
  TRY_ASSIGN(const Template source, template_store_->get(options.template_name));
  // User tasks do not run in a template that was booted: nothing has to be thawed. In a saved one they do, and stand still.
  const ForkStrictness tasks = source.info.saved.empty() ? ForkStrictness::kLoose : ForkStrictness::kStrict;
  CreateOptions own = options;
  own.env.insert(source.info.env.begin(), source.info.env.end());  // the call's own words win
  return from_zygote([&] { return zygotes_->acquire(options.template_name, options.vcpus, options.memory_mib); },
                     [&](const Zygotes::Zygote& z) -> Result<SandboxInfo> {
                       if (z.row.template_digest == source.digest) return create_from(z, own, begin, tasks, nullptr);
                       return fail(ErrorKind::kConflict, "template '" + options.template_name + "' was replaced meanwhile");
                     });
}

Result<SandboxInfo> HostImpl::create_from_snapshot(const SnapshotDetails& snapshot, const CreateOptions& options, int64_t begin,
                                                   const SandboxInfo* parent) {
  const std::string& id = snapshot.info.id;
  CreateOptions own = options;
  if (!parent) own.env.insert(snapshot.info.env.begin(), snapshot.info.env.end());  // the call's own words win
  const ForkStrictness tasks = snapshot.info.strict ? ForkStrictness::kStrict : ForkStrictness::kLoose;
  return from_zygote([&] { return zygotes_->acquire_snapshot(id, [&] { return snapshots_->load(id); }); },
                     [&](const Zygotes::Zygote& z) { return create_from(z, own, begin, tasks, parent); });
}

// A zygote may die under the request: that is our trouble, not the caller's.
Result<SandboxInfo> HostImpl::from_zygote(const std::function<Result<Zygotes::Zygote>()>& acquire,
                                          const std::function<Result<SandboxInfo>(const Zygotes::Zygote&)>& create) {
  for (int attempt = 1;; attempt++) {
    TRY_ASSIGN(const Zygotes::Zygote zygote, acquire());
    Result<SandboxInfo> made = create(zygote);
    const bool lost_zygote =
        !made && made.error().kind() == ErrorKind::kUnavailable && zygote.machine->wait_end(deadline_after(Milliseconds(200)));
    if (made || !lost_zygote || attempt == 2) return made;
  }
}

Result<SandboxInfo> HostImpl::create_from(const Zygotes::Zygote& zygote, const CreateOptions& options, int64_t begin,
                                          ForkStrictness tasks, const SandboxInfo* parent) {
  Birth birth;
  SandboxInfo& info = birth.row.info;
  info.id = new_id("sb");
  info.family_id = info.id;
  info.template_name = zygote.row.info.template_name;
  if (parent) {
    info.parent_id = parent->id;
    info.depth = parent->depth + 1;
  }
  info.created_at_ns = wall_ns();
  info.expires_at_ns = expiry(options.ttl_seconds);
  info.labels = options.labels;
  info.env = options.env;
  info.idle_seconds = options.idle_seconds;
  info.vcpus = zygote.row.info.vcpus;
  info.memory_mib = zygote.row.info.memory_mib;
  info.disk_bytes = zygote.row.info.disk_bytes;
  info.timing.template_boot_ms = zygote.boot_ms;
  birth.row.template_digest = zygote.row.template_digest;
  birth.requested_at_ns = begin;
  TRY(bring_to_life(zygote, birth, tasks, Origin::kNew));
  crash_point("create.running");
  return info;
}

Status HostImpl::bring_to_life(const Zygotes::Zygote& zygote, Birth& birth, ForkStrictness tasks, Origin origin) {
  TRY_ASSIGN(const Admission::Reservation room, admission_.reserve(4 * kMachineOverheadBytes, 4u << 20));
  const BirthUnderWay under_way(*this, zygote.machine->facts().id);  // the child starts in its zygote's leaf
  const SandboxInfo& info = birth.row.info;
  const bool is_new = origin == Origin::kNew;
  // Who comes second runs on memory that nobody can have spoiled.
  if (zygote.filler && zygote.filler->claim(info.family_id))
    birth.filler = zygote.filler;
  else if (zygote.filler)
    TRY(zygote.filler->wait_complete(deadline_after(options_.child_deadline)));
  birth.overlay = new_id("ov");
  const ForkIntent intent{new_id("op"), zygote.machine->facts().id, {}, {birth.row}, {birth.overlay}};
  TRY(is_new ? registry_->begin_fork(intent) : registry_->begin_resume(intent));
  crash_point(is_new ? "create.journalled" : "resume.journalled");
  if (is_new) insert(info);
  const auto give_up = [&](Error error) -> Status {
    (void)fork_outcomes_->note(intent, false).has_value();  // kept if it fails
    if (is_new) {
      undo_birth(*context_, birth);
      erase(info.id, {});
    } else if (origin == Origin::kPaused) {
      undo_resume(birth);
    } else {
      end_child(birth);
    }
    return tl::unexpected<Error>(std::move(error).with_context("start from template '" + info.template_name + "'"));
  };
  if (Status prepared = prepare_birth(*context_, birth, BirthStart::kAtOnce); !prepared)
    return give_up(std::move(prepared).error());
  crash_point(is_new ? "create.files" : "resume.files");

  FdsToSend fds;
  vmm::Request request;
  vmm::ForkChild& child = *request.mutable_fork()->add_children();
  child.set_sandbox_id(info.id);
  child.set_bootstrap_fd(fds.add(birth.bootstrap.theirs.get()));
  Result<MonitorReply> reply = fail(ErrorKind::kInternal, "");
  {
    const std::lock_guard one_at_a_time(zygote.machine->fork_lock());
    birth.fork_requested_at_ns = monotonic_ns();
    reply = zygote.machine->call(std::move(request), fds, deadline_after(options_.child_deadline));
  }
  crash_point(is_new ? "create.requested" : "resume.requested");
  if (!reply) {
    const ErrorKind kind = reply.error().kind();
    if (kind == ErrorKind::kTimeout || kind == ErrorKind::kUnavailable || kind == ErrorKind::kCorrupt)
      zygotes_->discard(zygote.machine->facts().id);
    return give_up(std::move(reply).error());
  }
  if (Status settled = fork_outcomes_->note(intent, false); !settled) return give_up(std::move(settled).error());
  const vmm::Forked& forked = reply->response.forked();
  if (!reply->response.has_forked() || forked.children_size() != 1)
    return give_up(Error(ErrorKind::kCorrupt, "the monitor answered Fork with something else"));
  if (forked.children(0).has_failure()) return give_up(error_of(forked.children(0).failure()));
  Result<UniqueFd> pidfd = reply->fds.take(forked.children(0).pidfd(), "pidfd");
  if (!pidfd) return give_up(std::move(pidfd).error());
  finish_birth(*context_, birth, std::move(*pidfd), tasks, BirthKind::kCreate);
  if (birth.error) return give_up(*birth.error);
  if (Status published = publish({&birth}); !published) return give_up(std::move(published).error());
  if (birth.filler)
    slow_->post([this, image = zygote.row.base_memory, touched = birth.filler->touched()] {
      snapshots_->note_working_set(image, touched);
    });
  return {};
}

void HostImpl::end_child(Birth& birth) {
  birth.bootstrap = BootstrapPair{};  // a child that was not committed ends by this
  if (!birth.machine) return;
  birth.machine->kill();
  if (!birth.machine->wait_end(deadline_after(Milliseconds(10'000))))
    log_warn(birth.row.info.id + ": its process does not end");
  birth.machine.reset();
}

// Its saved state is what counts again.
void HostImpl::undo_resume(Birth& birth) {
  const SandboxInfo& info = birth.row.info;
  end_child(birth);
  give_back(info);
  const Status paused = registry_->set_paused(info.id, birth.row.saved);
  if (!paused) log_error(paused.error().to_string());
}

}  // namespace ramet::host
