// Create = fork of the template's zygote. What is shared with a live fork (births, publishing) is here too.
#include "base/log.h"
#include "host/crash_point.h"
#include "host/host_impl.h"
#include "host/ids.h"

namespace ramet::host {

Status HostImpl::check_room_for(uint32_t count) {
  size_t live = 0;
  for (const std::shared_ptr<Sandbox>& s : snapshot()) {
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
  TRY(check_template_name(options.template_name));
  TRY(check_room_for(1));
  for (int attempt = 1;; attempt++) {
    TRY_ASSIGN(const TemplateRuntime::Zygote zygote,
               runtime_->acquire(options.template_name, options.vcpus, options.memory_mib));
    Result<SandboxInfo> made = create_from(zygote, options, begin);
    // A zygote may die under the request: that is our trouble, not the caller's.
    const bool lost_zygote =
        !made && made.error().kind() == ErrorKind::kUnavailable && zygote.machine->wait_end(deadline_after(Milliseconds(200)));
    if (made || !lost_zygote || attempt == 2) return made;
  }
}

Result<SandboxInfo> HostImpl::create_from(const TemplateRuntime::Zygote& zygote, const CreateOptions& options, int64_t begin) {
  TRY_ASSIGN(const Admission::Reservation room, admission_.reserve(4 * kMachineOverheadBytes, 4u << 20));
  const BirthUnderWay under_way(*this, zygote.machine->facts().id);  // the child starts in its zygote's leaf

  Birth birth;
  SandboxInfo& info = birth.row.info;
  info.id = new_id("sb");
  info.family_id = info.id;
  info.template_name = options.template_name;
  info.created_at_ns = wall_ns();
  info.expires_at_ns = expiry(options.ttl_seconds);
  info.labels = options.labels;
  info.env = options.env;
  info.vcpus = zygote.vcpus;
  info.memory_mib = zygote.memory_mib;
  info.disk_bytes = zygote.source.info.disk_bytes;
  info.timing.template_boot_ms = zygote.boot_ms;
  birth.row.template_digest = zygote.source.digest;
  birth.overlay = new_id("ov");
  birth.requested_at_ns = begin;

  ForkIntent intent{new_id("op"), zygote.machine->facts().id, {}, {birth.row}, {birth.overlay}};
  TRY(registry_->begin_fork(intent));
  crash_point("create.journalled");
  insert(info);
  const auto give_up = [&](Error error) -> Result<SandboxInfo> {
    (void)fork_outcomes_->note(intent, false).has_value();  // kept if it fails
    undo_birth(*context_, birth);
    erase(info.id, {});
    return tl::unexpected<Error>(std::move(error).with_context("create from template '" + options.template_name + "'"));
  };
  if (Status prepared = prepare_birth(*context_, birth, BirthStart::kAtOnce); !prepared)
    return give_up(std::move(prepared).error());
  crash_point("create.files");

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
  crash_point("create.requested");
  if (!reply) {
    const ErrorKind kind = reply.error().kind();
    if (kind == ErrorKind::kTimeout || kind == ErrorKind::kUnavailable || kind == ErrorKind::kCorrupt)
      runtime_->discard(zygote.machine->facts().id);
    return give_up(std::move(reply).error());
  }
  if (Status settled = fork_outcomes_->note(intent, false); !settled) return give_up(std::move(settled).error());
  const vmm::Forked& forked = reply->response.forked();
  if (!reply->response.has_forked() || forked.children_size() != 1)
    return give_up(Error(ErrorKind::kCorrupt, "the monitor answered Fork with something else"));
  if (forked.children(0).has_failure()) return give_up(error_of(forked.children(0).failure()));
  Result<UniqueFd> pidfd = reply->fds.take(forked.children(0).pidfd(), "pidfd");
  if (!pidfd) return give_up(std::move(pidfd).error());
  // User tasks do not run in a template: nothing has to be thawed, but Identify is as strict as in a fork.
  finish_birth(*context_, birth, std::move(*pidfd), ForkStrictness::kLoose, BirthKind::kCreate);
  if (birth.error) return give_up(*birth.error);
  if (Status published = publish({&birth}); !published) return give_up(std::move(published).error());
  crash_point("create.running");
  return info;
}

}  // namespace ramet::host
