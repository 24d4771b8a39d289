// A live fork, and a create from a zygote: the same steps, with or without a running parent.
//
//   parent                                        child
//   stand still (vCPUs, devices), state in memory
//   fork(2) ------------------------------------> let go: threads, VM, event loop, sockets; close all but `keep`
//   go on at once                                 read ChildSetup (queued before the fork)
//   answer Forked{pidfds}                         new VM over the same memory, restore, new generation id
//                                                 go on; Ready    (or stay as it is: a frozen child, for a snapshot)
// For n > 1 the parent forks one child in between, which never runs the machine, forks the n children, reports them and ends:
// the parent stands still for one fork(2) only.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/userfault.h"
#include "vmm/disk_setup.h"
#include "vmm/monitor.h"

namespace ramet::vmm {
namespace {

constexpr int kMaxChildren = 100;
constexpr Milliseconds kDefaultQuiesceLimit{2000};
constexpr std::chrono::seconds kSetupLimit{5};
constexpr std::chrono::seconds kReportLimit{30};
// Longer chains of ancestors' memory make fork(2) slower (docs/decisions/0003).
constexpr uint32_t kForksBeforeRebase = 16;
constexpr Milliseconds kLookIfComplete{250};

void note_failure(ForkedChild& child, const Error& error) { *child.mutable_failure() = control::to_failure(error); }

}  // namespace

Result<Monitor::ForkPlan> Monitor::plan_fork(control::Server::Ticket ticket, const Fork& request, control::ReceivedFds& fds) {
  if (request.children_size() < 1 || request.children_size() > kMaxChildren)
    return fail(ErrorKind::kInvalid,
                std::to_string(request.children_size()) + " children, the limits are 1 and " + std::to_string(kMaxChildren));
  ForkPlan plan;
  plan.ticket = ticket;
  plan.quiesce_limit = request.quiesce_deadline_ms() ? Milliseconds(request.quiesce_deadline_ms()) : kDefaultQuiesceLimit;
  for (const ForkChild& child : request.children()) {
    TRY_ASSIGN(UniqueFd bootstrap, fds.take(child.bootstrap_fd(), "bootstrap"));
    plan.children.push_back({child.sandbox_id(), std::move(bootstrap)});
    plan.answer.add_children()->set_sandbox_id(child.sandbox_id());
  }
  if (request.parent_disks_size() > 0 && request.parent_disks(0).has_writable()) {
    TRY_ASSIGN(plan.next_overlay, take_overlay(request.parent_disks(0).writable(), fds));
  }
  const Disk* disk = machine_->disk();
  if (disk && !disk->writable_id().empty() && !plan.next_overlay)
    return fail(ErrorKind::kInvalid, "the fork brings no next overlay for disk " + disk->id());
  plan.answer.set_requested_at_ns(monotonic_ns());
  return plan;
}

void Monitor::perform_fork() {
  ForkPlan plan = std::move(*fork_);
  fork_.reset();
  plan.was_standing = machine_->standing();
  const Status still = machine_->stand_still(deadline_after(plan.quiesce_limit));
  if (!still) {
    const bool late = still.error().kind() == ErrorKind::kTimeout;
    server_.respond_error(plan.ticket, late ? Error(ErrorKind::kNotQuiescent, still.error().message()) : still.error());
    return;
  }
  plan.answer.set_stopped_at_ns(machine_->stopped_at_ns());
  const Status frozen = freeze_disk(plan);
  if (!frozen) {
    if (!plan.was_standing) machine_->go_on();
    server_.respond_error(plan.ticket, frozen.error());
    return;
  }
  plan.answer.set_fork_begin_ns(monotonic_ns());
  const Side side = plan.children.size() == 1 ? branch_directly(plan) : branch_through_middle(plan);
  if (side == Side::kChild) log_debug("forked, generation " + std::to_string(generation_));
}

// The writers of a frozen overlay close before the fork, so that no child inherits one.
Status Monitor::freeze_disk(ForkPlan& plan) {
  Disk* const disk = machine_->disk();
  if (!disk) return {};
  TRY_ASSIGN(const bool frozen, disk->freeze());
  if (frozen) plan.answer.add_frozen_disks(disk->id());
  return {};
}

void Monitor::parent_goes_on(ForkPlan& plan) {
  plan.fork_end_ns = monotonic_ns();
  if (plan.answer.frozen_disks_size() > 0) {
    const Status started = machine_->disk()->start_overlay(*std::move(plan.next_overlay));
    if (!started) finish("internal_error", "the next overlay cannot be used: " + started.error().message());
  }
  plan.next_overlay.reset();
  if (!plan.was_standing) machine_->go_on();
}

void Monitor::note_resumed(ForkPlan& plan) {
  plan.answer.set_fork_end_ns(plan.fork_end_ns);
  plan.children.clear();  // the children's ends of their bootstrap sockets: theirs alone now
  if (!plan.was_standing) plan.answer.set_resumed_at_ns(machine_->wait_entered_ns());
}

Monitor::Side Monitor::branch_directly(ForkPlan& plan) {
  Result<Branch> b = branch([&] { parent_goes_on(plan); });
  if (b && b->is_child()) {
    become_child(plan, 0);
    return Side::kChild;
  }
  note_resumed(plan);
  ForkedChild& child = *plan.answer.mutable_children(0);
  control::FdsToSend fds;
  if (b) {
    child.set_pid(b->pid);
    child.set_pidfd(fds.add(b->pidfd.get()));
  } else {
    note_failure(child, b.error());
  }
  Response response;
  *response.mutable_forked() = std::move(plan.answer);
  server_.respond(plan.ticket, std::move(response), fds.fds());
  return Side::kParent;
}

Monitor::Side Monitor::branch_through_middle(ForkPlan& plan) {
  Result<SocketPair> report = make_socket_pair(SOCK_SEQPACKET);
  const auto goes_on = [&] { parent_goes_on(plan); };
  if (!report) goes_on();
  Result<Branch> b = report ? branch(goes_on) : tl::unexpected<Error>(report.error());
  if (b && b->is_child()) {
    report->a.reset();
    return be_middle(plan, std::move(report->b));
  }
  note_resumed(plan);
  if (!b) {
    server_.respond_error(plan.ticket, b.error());
    return Side::kParent;
  }
  report->b.reset();
  await_middle(std::move(plan), std::move(report->a), std::move(b->pidfd));
  return Side::kParent;
}

void Monitor::await_middle(ForkPlan plan, UniqueFd report, UniqueFd pidfd) {
  // Shared by the callback that it belongs to and nobody else; std::function wants something that can be copied.
  struct Awaited {
    ForkPlan plan;
    UniqueFd report, pidfd;
  };
  const std::shared_ptr<Awaited> awaited =
      std::make_shared<Awaited>(Awaited{std::move(plan), std::move(report), std::move(pidfd)});
  const int fd = awaited->report.get();
  const Status watched = loop_->add(fd, EPOLLIN, [this, awaited, fd](uint32_t) {
    loop_->remove(fd);
    Forked children;
    Result<control::ReceivedFds> fds = control::receive(fd, children, MonotonicClock::now());
    Forked answer = std::move(awaited->plan.answer);
    control::FdsToSend to_send;
    std::vector<UniqueFd> owned;
    for (int i = 0; i < answer.children_size(); i++) {
      ForkedChild& child = *answer.mutable_children(i);
      if (!fds || i >= children.children_size()) {
        note_failure(child, Error(ErrorKind::kUnavailable, "the child in between ended before it had forked"));
        continue;
      }
      child = children.children(i);
      if (child.has_failure()) continue;
      Result<UniqueFd> child_pidfd = fds->take(child.pidfd(), "pidfd");
      child.set_pidfd(child_pidfd ? to_send.add(child_pidfd->get()) : 0);
      if (child_pidfd) owned.push_back(*std::move(child_pidfd));
    }
    Response response;
    *response.mutable_forked() = std::move(answer);
    server_.respond(awaited->plan.ticket, std::move(response), to_send.fds());
  });
  if (!watched) server_.respond_error(awaited->plan.ticket, watched.error());
}

Monitor::Side Monitor::be_middle(ForkPlan& plan, UniqueFd report) {
  plan.next_overlay.reset();
  const bool being_filled = userfault_.valid();
  std::vector<int> keep{report.get()};
  for (const ForkPlan::Child& child : plan.children) keep.push_back(child.bootstrap.get());
  let_go_of_parent(keep);
  // Once for all children, who then share the copy. Where it fails each of them tries, and reports it.
  if (!being_filled) static_cast<void>(leave_chain_longer_than(kForksBeforeRebase - 1));
  Forked answer;
  control::FdsToSend fds;
  std::vector<UniqueFd> pidfds;
  for (size_t i = 0; i < plan.children.size(); i++) {
    Result<Branch> b = branch([] {});
    if (b && b->is_child()) {
      report.reset();
      pidfds.clear();
      become_child(plan, i);
      return Side::kChild;
    }
    ForkedChild& child = *answer.add_children();
    child.set_sandbox_id(plan.children[i].id);
    if (!b) {
      note_failure(child, b.error());
      continue;
    }
    child.set_pid(b->pid);
    child.set_pidfd(fds.add(b->pidfd.get()));
    pidfds.push_back(std::move(b->pidfd));
  }
  static_cast<void>(control::send(report.get(), answer, fds.fds(), deadline_after(kReportLimit)));
  ::_exit(0);
}

void Monitor::let_go_of_parent(const std::vector<int>& also_keep) {
  forks_since_rebase_++;
  machine_->after_fork();
  // Frozen: nothing to drop. Not frozen: it is empty, and the parent's.
  const Status dropped = machine_->disk() ? machine_->disk()->drop_overlay() : Status();
  server_.after_fork();
  bootstrap_.reset();
  userfault_.reset();  // it stands for the parent's memory
  fork_.reset();
  const Status loop = loop_->after_fork();
  machine_->use_loop(*loop_);
  std::vector<int> keep{0, 1, 2, system_->fd()};
  keep.insert(keep.end(), also_keep.begin(), also_keep.end());
  for (const int fd : machine_->descriptors_to_keep()) keep.push_back(fd);
  for (const int fd : loop_->descriptors()) keep.push_back(fd);
  const Status closed = keep_only(std::move(keep));
  for (const Status& status : {dropped, loop, closed}) {
    if (status) continue;
    log_error(status.error().to_string());
    ::_exit(1);  // nothing to report on: the bootstrap socket hangs up
  }
}

void Monitor::become_child(ForkPlan& plan, size_t index) {
  const int64_t forked_at = monotonic_ns();
  UniqueFd bootstrap = std::move(plan.children[index].bootstrap);
  plan.children.clear();
  plan.next_overlay.reset();
  let_go_of_parent({bootstrap.get()});
  bootstrap_ = std::move(bootstrap);
  generation_++;
  paused_ = captured_ = false;
  const Status grown = grow(forked_at);
  if (grown) return;
  log_error(grown.error().to_string());
  BootstrapReply reply;
  *reply.mutable_failed() = control::to_failure(grown.error());
  static_cast<void>(report(std::move(reply)));
  ::_exit(1);
}

Status Monitor::leave_chain_longer_than(uint32_t forks) {
  if (forks_since_rebase_ <= forks) return {};
  TRY(machine_->ram().rebase());
  forks_since_rebase_ = 0;
  return {};
}

Status Monitor::adopt_setup(const ChildSetup& setup, control::ReceivedFds& fds) {
  sandbox_id_ = setup.sandbox_id();
  log_init("ramet-vmm", sandbox_id_, LogLevel::kInfo);
  TRY_ASSIGN(UniqueFd console, fds.take_optional(setup.console_fd(), "console"));
  machine_->console().replace(std::move(console));
  TRY_ASSIGN(UniqueFd listener, fds.take(setup.listen_fd(), "listen"));
  TRY(adopt_disk(setup, fds));
  return server_.listen(std::move(listener));
}

Status Monitor::adopt_disk(const ChildSetup& setup, control::ReceivedFds& fds) {
  Disk* const disk = machine_->disk();
  if (!disk) return {};
  const DiskSetup& own = setup.disks_size() > 0 ? setup.disks(0) : DiskSetup::default_instance();
  if (disk->has_chunked_base()) {
    TRY_ASSIGN(UniqueFd chunks, fds.take(own.chunk_fd(), "the child's chunk socket"));
    TRY(disk->attach_base(std::move(chunks)));
    TRY(watch_base());
  }
  if (disk_read_only_) return {};
  if (!own.has_writable()) return fail(ErrorKind::kInvalid, "the child's setup brings no overlay for disk " + disk->id());
  TRY_ASSIGN(OverlayDescriptors overlay, take_overlay(own.writable(), fds));
  return disk->start_overlay(std::move(overlay));
}

Status Monitor::stay_frozen(const ChildSetup& setup, control::ReceivedFds& fds, int64_t forked_at_ns) {
  sandbox_id_ = setup.sandbox_id();
  log_init("ramet-vmm", sandbox_id_, LogLevel::kInfo);
  TRY_ASSIGN(const UniqueFd state_file, fds.take(setup.vmstate_fd(), "vmstate"));
  frozen_ = true;
  BootstrapReply reply;
  Ready& ready = *reply.mutable_ready();
  ready = describe();
  ready.set_forked_at_ns(forked_at_ns);
  TRY_ASSIGN(const uint64_t state_bytes, write_vmstate(state_file.get(), machine_->ram().zeros()));
  ready.set_vmstate_bytes(state_bytes);
  TRY(watch_bootstrap());
  return report(std::move(reply));
}

// What is mapped anew is not watched: a longer chain of ancestors is slower, a page that nobody fills is wrong.
Status Monitor::have_memory_filled(const ChildSetup& setup, control::ReceivedFds& fds) {
  TRY_ASSIGN(const UniqueFd device, fds.take(setup.userfault_device_fd(), "userfault device"));
  if (!machine_->ram().from_image())
    return fail(ErrorKind::kInvalid, "the memory of this machine comes from no image: nothing of it can be missing");
  TRY_ASSIGN(userfault_, create_userfault(device.get()));
  TRY(machine_->ram().watch_faults(userfault_.get()));
  BootstrapReply reply;
  control::FdsToSend out;
  reply.mutable_userfault()->set_userfault_fd(out.add(userfault_.get()));
  reply.mutable_userfault()->set_ram_address(describe().ram_address());
  TRY(control::send(bootstrap_.get(), reply, out.fds(), deadline_after(kReportLimit)));
  end_with_daemon(true);
  drop_userfault_when_complete();
  return {};
}

// The main thread may wait for memory before it looks at its sockets again. If the daemon goes then nobody ever brings any: its
// hang-up ends this process by SIGIO, whatever a thread waits for.
void Monitor::end_with_daemon(bool also_while_waiting) {
  const int socket = bootstrap_.get();
  const int flags = ::fcntl(socket, F_GETFL);
  ::fcntl(socket, F_SETOWN, ::getpid());
  ::fcntl(socket, F_SETFL, also_while_waiting ? flags | O_ASYNC : flags & ~O_ASYNC);
  pollfd gone{socket, 0, 0};
  if (::poll(&gone, 1, 0) > 0) ::_exit(1);
}

// The last descriptor to be closed wakes whoever found a page missing just before it came.
void Monitor::drop_userfault_when_complete() {
  if (machine_->ram().files_complete()) return userfault_.reset();
  loop_->add_timer(deadline_after(kLookIfComplete), [this] { drop_userfault_when_complete(); });
}

Status Monitor::grow(int64_t forked_at_ns) {
  ChildSetup setup;
  TRY_ASSIGN(control::ReceivedFds fds, control::receive(bootstrap_.get(), setup, deadline_after(kSetupLimit)));
  if (setup.vmstate_fd() != 0) return stay_frozen(setup, fds, forked_at_ns);
  TRY(adopt_setup(setup, fds));
  GenerationId id{};
  if (setup.generation_id().size() != id.size())
    return fail(ErrorKind::kInvalid, "generation id has " + std::to_string(setup.generation_id().size()) + " bytes, not 16");
  std::memcpy(id.data(), setup.generation_id().data(), id.size());

  if (setup.userfault_device_fd() != 0)
    TRY(have_memory_filled(setup, fds));
  else
    TRY(leave_chain_longer_than(kForksBeforeRebase));
  BootstrapReply reply;
  TRY(machine_->build(*system_));
  const int64_t vm_created_at = monotonic_ns();
  TRY(machine_->restore(from_image_ ? kvm::TimeMode::kStandsStill : kvm::TimeMode::kRunsOn, id));
  Ready& ready = *reply.mutable_ready();
  ready = describe();
  ready.set_forked_at_ns(forked_at_ns);
  ready.set_vm_created_at_ns(vm_created_at);
  ready.set_restored_at_ns(monotonic_ns());
  start_on_commit_ = setup.start_on_commit();
  if (!start_on_commit_) {
    set_machine_going();
    ready.set_running_at_ns(machine_->wait_entered_ns());
  }
  if (setup.userfault_device_fd() != 0) end_with_daemon(false);
  TRY(watch_bootstrap());
  return report(std::move(reply));
}

}  // namespace ramet::vmm
