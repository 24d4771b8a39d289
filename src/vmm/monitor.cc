#include "vmm/monitor.h"

#include <sys/epoll.h>

#include "base/file.h"
#include "base/log.h"
#include "vmm/disk_setup.h"

namespace ramet::vmm {
namespace {
constexpr Milliseconds kPauseLimit{2000};
constexpr Milliseconds kConnectLimit{5000};
constexpr std::chrono::seconds kFarewellLimit{1};
}  // namespace

Monitor::Monitor(std::unique_ptr<EventLoop> loop)
    : loop_(std::move(loop)),
      server_(*loop_, [this](control::Server::Ticket ticket, const Request& request, control::ReceivedFds fds) {
        on_request(ticket, request, std::move(fds));
      }) {}

Monitor::~Monitor() = default;

int Monitor::run() {
  while (!exit_code_) {
    loop_->run();
    if (fork_ && !exit_code_) perform_fork();
  }
  return *exit_code_;
}

void Monitor::on_request(control::Server::Ticket ticket, const Request& request, control::ReceivedFds fds) {
  using Op = Request::OpCase;
  const auto answer = [&](const Status& status) {
    if (status)
      server_.respond_ok(ticket);
    else
      server_.respond_error(ticket, status.error());
  };
  switch (request.op_case()) {
    case Op::kPing: return answer({});
    case Op::kFork: {
      if (fork_) return answer(fail(ErrorKind::kConflict, "another fork is under way"));
      Result<ForkPlan> plan = plan_fork(ticket, request.fork(), fds);
      if (!plan) return server_.respond_error(ticket, plan.error());
      fork_ = *std::move(plan);
      return loop_->stop();  // the main loop performs it
    }
    case Op::kConnect: return connect(ticket, request.connect());
    case Op::kCapture: {
      Result<Captured> captured = capture(request.capture(), fds);
      if (!captured) return server_.respond_error(ticket, captured.error());
      Response response;
      *response.mutable_captured() = *std::move(captured);
      return server_.respond(ticket, std::move(response));
    }
    case Op::kPause: return answer(pause());
    case Op::kResume: return answer(resume());
    case Op::kPowerButton: machine_->power().press_button(); return answer({});
    case Op::kStop: answer({}); return finish("stopped", "asked for by the daemon");
    case Op::kGetStats: {
      Response response;
      *response.mutable_stats() = stats();
      return server_.respond(ticket, std::move(response));
    }
    case Op::kDebugPush: {
      if (!machine_->debug_port()) return answer(fail(ErrorKind::kUnsupported, "this machine has no debug port"));
      const std::vector<uint32_t> words(request.debug_push().words().begin(), request.debug_push().words().end());
      return answer(machine_->debug_port()->push(words));
    }
    case Op::kReplaceFrozen: return answer(replace_frozen(request.replace_frozen(), fds));
    case Op::kFreezeDisk: {
      Result<DiskFrozen> frozen = swap_overlay(request.freeze_disk(), fds);
      if (!frozen) return server_.respond_error(ticket, frozen.error());
      Response response;
      *response.mutable_disk_frozen() = *std::move(frozen);
      return server_.respond(ticket, std::move(response));
    }
    case Op::kGetUserfault: return get_userfault(ticket);
    case Op::kAttachBase: return answer(attach_base(request.attach_base(), fds));
    default: return answer(fail(ErrorKind::kUnsupported, "unknown request " + std::to_string(request.op_case())));
  }
}

void Monitor::set_machine_going() {
  from_image_ = false;
  machine_->go_on();
}

Status Monitor::pause() {
  if (machine_->standing() && !paused_)
    return fail(ErrorKind::kConflict, "the machine does not run");  // a zygote, or not committed
  TRY(machine_->stand_still(deadline_after(kPauseLimit)));
  paused_ = true;
  return {};
}

Status Monitor::resume() {
  if (!paused_) return fail(ErrorKind::kConflict, "the machine is not paused");
  if (captured_) return fail(ErrorKind::kConflict, "the machine was captured: its disk is frozen");
  paused_ = false;
  set_machine_going();
  return {};
}

Result<Disk*> Monitor::disk_named(const std::string& id) const {
  Disk* const disk = machine_->disk();
  if (disk && disk->id() == id) return disk;
  return fail(ErrorKind::kNotFound, "this machine has no disk '" + id.substr(0, 64) + "'");
}

Status Monitor::replace_frozen(const ReplaceFrozen& request, control::ReceivedFds& fds) {
  TRY_ASSIGN(OverlayDescriptors merged, take_overlay(request.merged(), fds));
  TRY_ASSIGN(Disk* const disk, disk_named(request.disk_id()));
  const bool was_standing = machine_->standing();
  if (!was_standing) TRY(machine_->stand_still(deadline_after(kPauseLimit)));
  Status replaced = disk->replace_frozen(request.first(), request.count(), std::move(merged));
  if (!was_standing) set_machine_going();
  return replaced;
}

// As a fork does it to its parent, without a fork.
Result<DiskFrozen> Monitor::swap_overlay(const FreezeDisk& request, control::ReceivedFds& fds) {
  TRY_ASSIGN(OverlayDescriptors next, take_overlay(request.next(), fds));
  TRY_ASSIGN(Disk* const disk, disk_named(request.disk_id()));
  if (machine_->standing() && !paused_) return fail(ErrorKind::kConflict, "the machine does not run");
  if (!paused_) TRY(machine_->stand_still(deadline_after(kPauseLimit)));
  const Result<bool> frozen = disk->freeze();
  if (frozen && *frozen) {
    const Status started = disk->start_overlay(std::move(next));
    if (!started) finish("internal_error", "the next overlay cannot be used: " + started.error().message());
  }
  if (!paused_) machine_->go_on();
  if (!frozen) return tl::unexpected<Error>(frozen.error());
  DiskFrozen answer;
  answer.set_swapped(*frozen);
  return answer;
}

// At any time: reads may be waiting for it.
Status Monitor::attach_base(const AttachBase& request, control::ReceivedFds& fds) {
  TRY_ASSIGN(UniqueFd chunks, fds.take(request.chunk_fd(), "chunk socket"));
  TRY_ASSIGN(Disk* const disk, disk_named(request.disk_id()));
  if (disk->has_chunked_base()) loop_->remove(disk->base_socket());
  TRY(disk->attach_base(std::move(chunks)));
  return watch_base();
}

void Monitor::get_userfault(control::Server::Ticket ticket) {
  if (!userfault_) return server_.respond_error(ticket, Error(ErrorKind::kNotFound, "all of this machine's memory is there"));
  Response response;
  control::FdsToSend fds;
  response.mutable_userfault()->set_userfault_fd(fds.add(userfault_.get()));
  response.mutable_userfault()->set_ram_address(describe().ram_address());
  server_.respond(ticket, std::move(response), fds.fds());
}

Status Monitor::watch_base() {
  Disk* const disk = machine_->disk();
  if (!disk || !disk->has_chunked_base()) return {};
  const int socket = disk->base_socket();
  return loop_->add(socket, EPOLLIN, [this, disk, socket](uint32_t) {
    if (!disk->tend_base()) loop_->remove(socket);
  });
}

void Monitor::connect(control::Server::Ticket ticket, const Connect& request) {
  if (machine_->standing()) return server_.respond_error(ticket, Error(ErrorKind::kConflict, "the machine does not run"));
  const Milliseconds limit = request.deadline_ms() ? Milliseconds(request.deadline_ms()) : kConnectLimit;
  machine_->vsock().connect(request.port(), deadline_after(limit), [this, ticket](Result<UniqueFd> stream) {
    if (!stream) return server_.respond_error(ticket, stream.error());
    Response response;
    control::FdsToSend fds;
    response.mutable_connected()->set_stream_fd(fds.add(stream->get()));
    server_.respond(ticket, std::move(response), fds.fds());
  });
}

Result<Captured> Monitor::capture(const Capture& request, control::ReceivedFds& fds) {
  TRY_ASSIGN(const UniqueFd state_file, fds.take(request.vmstate_fd(), "vmstate"));
  TRY_ASSIGN(const UniqueFd even, fds.take(request.memory_even_fd(), "even memory file"));
  TRY_ASSIGN(const UniqueFd odd, fds.take(request.memory_odd_fd(), "odd memory file"));
  if (from_image_) return fail(ErrorKind::kConflict, "a machine that never ran is its image already");
  TRY(pause());
  captured_ = true;
  Captured out;
  if (Disk* disk = machine_->disk()) {
    TRY_ASSIGN(const bool frozen, disk->freeze());
    if (frozen) out.add_frozen_disks(disk->id());
  }
  TRY_ASSIGN(GuestRam::Captured ram, machine_->ram().capture(even.get(), odd.get()));
  TRY_ASSIGN(const uint64_t state_bytes, write_vmstate(state_file.get(), std::move(ram.zeros)));
  out.set_vmstate_bytes(state_bytes);
  out.set_stored_bytes(ram.stored_bytes);
  return out;
}

// How many bytes.   Requires: standing.
Result<uint64_t> Monitor::write_vmstate(int file, image::ZeroMap zeros) const {
  VmState state = machine_->save();
  state.zeros = std::move(zeros);
  state.cpu_model = system_->cpu_model();
  state.generation = generation_;
  const std::string bytes = encode_vmstate(state);
  TRY(pwrite_all(file, as_bytes(bytes), 0));
  return bytes.size();
}

Stats Monitor::stats() const {
  Stats s;
  s.set_generation(generation_);
  s.set_exits(machine_->exits());
  s.set_console_bytes(machine_->console().total_bytes());
  s.set_vsock_connections(machine_->vsock().metrics().connections);
  s.set_balloon_reported_bytes(machine_->balloon().metrics().reported_bytes);
  if (const Disk* disk = machine_->disk()) {
    s.set_block_reads(disk->metrics().reads);
    s.set_block_writes(disk->metrics().writes);
    s.set_block_flushes(disk->metrics().flushes);
    s.set_overlay_blocks(disk->overlay_blocks());
    for (const std::string& id : disk->frozen_ids()) s.add_frozen_overlays(id);
  }
  return s;
}

void Monitor::finish(const std::string& reason, const std::string& detail) {
  log_info("ended: " + reason + " (" + detail + ")");
  machine_->console().flush();
  Event event;
  event.mutable_ended()->set_reason(reason);
  event.mutable_ended()->set_detail(detail);
  server_.send_event(event);
  server_.flush(deadline_after(kFarewellLimit));
  exit_code_ = 0;
  loop_->stop();
}

}  // namespace ramet::vmm
