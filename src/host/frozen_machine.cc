#include "host/frozen_machine.h"

#include <poll.h>
#include <signal.h>

#include "base/file.h"
#include "base/log.h"
#include "host/crash_point.h"
#include "host/ids.h"

namespace ramet::host {
namespace {

constexpr uint32_t kQuiesceMs = 2000;
constexpr uint64_t kVmstateLimit = 64u << 20;
constexpr Milliseconds kEndLimit{5000};

// Under memory pressure the copy goes before any sandbox.
void offer_to_oom_killer(pid_t pid) {
  const Result<UniqueFd> score = open_file("/proc/" + std::to_string(pid) + "/oom_score_adj", O_WRONLY);
  if (!score || !write_all(score->get(), as_bytes(std::string("1000")))) log_debug("a frozen child keeps its oom score");
}

}  // namespace

Result<std::vector<image::OverlayFiles>> open_frozen_overlays(const Context& context, const std::vector<std::string>& ids) {
  std::vector<image::OverlayFiles> out;
  uint64_t bytes = 0;
  for (const std::string& id : ids) {
    TRY_ASSIGN(OverlayReadFiles files, context.resources.overlays.open_read(id));
    out.push_back(image::overlay_from_descriptors(id, {}, std::move(files.data_ro), {}, std::move(files.log_ro)));
    bytes += context.resources.overlays.allocated_bytes(id);
  }
  TRY(context.admission.check_disk(bytes));
  return out;
}

Result<std::unique_ptr<FrozenMachine>> FrozenMachine::make(const Context& context, const SandboxInfo& of, Machine& machine,
                                                           FrozenTasks* tasks) {
  std::unique_ptr<FrozenMachine> frozen(new FrozenMachine(context, new_id("fz")));
  TRY_ASSIGN(frozen->bases_, context.registry.bases(of.id));
  const Status made = frozen->fork(of, machine, tasks);
  if (!made) return tl::unexpected<Error>(Error(made.error()).with_context("snapshot of sandbox '" + of.id + "'"));
  return frozen;
}

FrozenMachine::~FrozenMachine() {
  bootstrap_ = BootstrapPair{};  // it ends by this
  if (pidfd_) {
    (void)signal_pidfd(pidfd_.get(), SIGKILL);
    if (!wait_for(pidfd_.get(), POLLIN, deadline_after(kEndLimit))) log_warn(id_ + ": its process does not end");
  }
  const Status gone = context_.registry.delete_machine(id_);
  if (!gone) log_error(gone.error().to_string());
  context_.overlays_changed();
}

Status FrozenMachine::prepare() {
  TRY_ASSIGN(vmstate_, make_memfd("ramet-vmstate", 0));
  TRY_ASSIGN(bootstrap_, make_bootstrap_pair());
  FdsToSend fds;
  vmm::ChildSetup setup;
  setup.set_sandbox_id(id_);
  setup.set_vmstate_fd(fds.add(vmstate_.get()));
  return vmm::control::send(bootstrap_.ours.get(), setup, fds.fds(), deadline_after(Milliseconds(1000)));
}

Status FrozenMachine::fork(const SandboxInfo& of, Machine& machine, FrozenTasks* tasks) {
  ForkIntent intent{new_id("op"), of.id, new_id("ov"), {}, {std::string()}};
  MachineRow row;
  row.info = of;
  row.info.id = id_;
  row.info.parent_id = of.id;
  row.info.state = SandboxState::kCreating;
  row.role = MachineRole::kFrozen;
  intent.children.push_back(row);
  TRY(context_.registry.begin_fork(intent));
  crash_point("snapshot.journalled");
  // Unless told otherwise the sandbox did not move to its next overlay.
  const auto give_up = [&](const Error& error) -> Status {
    (void)context_.fork_outcomes.note(intent, false).has_value();  // kept if it fails
    return tl::unexpected<Error>(error);
  };
  if (const Status ready = prepare(); !ready) return give_up(ready.error());
  Result<OverlayFiles> next = context_.resources.overlays.create(intent.parent_next);
  if (!next) return give_up(next.error());

  FdsToSend fds;
  vmm::Request request;
  vmm::Fork& f = *request.mutable_fork();
  f.set_quiesce_deadline_ms(kQuiesceMs);
  f.add_children()->set_sandbox_id(id_);
  f.mutable_children(0)->set_bootstrap_fd(fds.add(bootstrap_.theirs.get()));
  f.add_parent_disks()->set_id("vda");
  add_overlay(*f.mutable_parent_disks(0)->mutable_writable(), fds, *next);

  // ---- the sandbox stands still from here ----
  if (tasks) {
    if (const Status still = tasks->freeze(); !still) return give_up(still.error());
    timing_.freeze_ms = ms_between(tasks->began_ns(), monotonic_ns());
  }
  Result<MonitorReply> reply =
      machine.call(std::move(request), fds, deadline_after(Milliseconds(kQuiesceMs) + context_.options.agent_deadline));
  if (tasks) tasks->send_thaw();
  // ---- and runs again from here ----
  crash_point("snapshot.forked");
  next = fail(ErrorKind::kInternal, "");  // our descriptors of its overlay go
  const bool answered = reply && reply->response.has_forked() && reply->response.forked().children_size() == 1;
  bool swapped = false;
  if (answered)
    for (const std::string& d : reply->response.forked().frozen_disks()) swapped = swapped || d == "vda";
  else
    swapped = process_has_open(machine.facts().pid, context_.paths.overlay_data(intent.parent_next));
  const Status settled = context_.fork_outcomes.note(intent, swapped);
  if (tasks && !tasks->confirm_thaw())
    log_warn("sandbox " + of.id + " did not confirm its thaw after a snapshot; its agent thaws by itself");
  TRY(settled);
  if (!reply) return tl::unexpected<Error>(reply.error());
  if (!answered) return fail(ErrorKind::kCorrupt, "the monitor answered Fork with something else");
  crash_point("snapshot.chain");
  const vmm::Forked& forked = reply->response.forked();
  timing_.vcpu_stop_ms = ms_between(forked.stopped_at_ns(), forked.resumed_at_ns());
  timing_.parent_pause_ms = tasks ? tasks->pause_ms() : timing_.vcpu_stop_ms;
  if (forked.children(0).has_failure()) return tl::unexpected<Error>(error_of(forked.children(0).failure()));
  TRY_ASSIGN(UniqueFd pidfd, reply->fds.take(forked.children(0).pidfd(), "pidfd"));
  return await(std::move(pidfd));
}

Status FrozenMachine::await(UniqueFd pidfd) {
  bootstrap_.theirs.reset();  // the child has its own: a dead one must read as a hang-up
  TRY_ASSIGN(const ReadyReport report, await_ready(bootstrap_.ours.get(), deadline_after(context_.options.child_deadline)));
  // The pidfd came from a hostile process. The sender's pid came from the kernel.
  pid_ = pid_of_pidfd(pidfd.get());
  if (pid_ == 0 || pid_ != report.sender)
    return fail(ErrorKind::kCorrupt, "the monitor handed over process " + std::to_string(pid_) + " but Ready came from " +
                                         std::to_string(report.sender));
  pidfd_ = std::move(pidfd);
  ready_ = report.ready;
  TRY_ASSIGN(const uint64_t start_time, process_start_time(pid_));
  TRY(context_.registry.set_process(id_, pid_, start_time, ready_.ram_address(), ready_.ram_bytes(), ready_.generation()));
  offer_to_oom_killer(pid_);
  crash_point("snapshot.frozen");
  return {};
}

Result<commit::ProcessMemory> FrozenMachine::memory() const {
  return commit::ProcessMemory::open(
      {.pid = pid_, .pidfd = pidfd_.get(), .address = ready_.ram_address(), .size_bytes = ready_.ram_bytes()});
}

Result<std::string> FrozenMachine::vmstate() const {
  TRY_ASSIGN(const uint64_t bytes, file_size(vmstate_.get()));
  if (bytes == 0 || bytes > kVmstateLimit || bytes != ready_.vmstate_bytes())
    return fail(ErrorKind::kCorrupt, "machine state of " + std::to_string(bytes) + " bytes, the monitor said " +
                                         std::to_string(ready_.vmstate_bytes()) + ", the limit is " +
                                         std::to_string(kVmstateLimit));
  std::string out(bytes, '\0');
  TRY(pread_exact(vmstate_.get(), std::as_writable_bytes(std::span(out)), 0));
  return out;
}

Result<std::vector<image::OverlayFiles>> FrozenMachine::overlays() const {
  TRY_ASSIGN(const std::vector<std::string> chain, context_.registry.chain(id_));
  return open_frozen_overlays(context_, chain);
}

}  // namespace ramet::host
