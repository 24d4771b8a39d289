#include "agent.h"

#include <linux/vm_sockets.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/log.h"
#include "error_table.h"
#include "files/operations.h"
#include "follow.h"
#include "identity.h"
#include "metrics.h"
#include "port.h"

#ifndef RAMET_VERSION
#define RAMET_VERSION "0"
#endif

namespace ramet::guest {
namespace {

constexpr uint32_t kDefaultFreezeMs = 500, kDefaultFsFreezeMs = 5000, kDefaultFsHoldMs = 10000, kDefaultGraceMs = 2000;
constexpr uint32_t kMaxWaitMs = 60'000;
constexpr size_t kMaxStdinBacklog = 1u << 20;
constexpr Milliseconds kAcceptPause{100};  // between two tries while there is no descriptor

Nanoseconds milliseconds_or(uint32_t given, uint32_t otherwise) {
  return Milliseconds(given == 0 ? otherwise : std::min(given, kMaxWaitMs));
}
uint32_t microseconds(Nanoseconds d) {
  return static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::microseconds>(d).count());
}

}  // namespace

Agent::Agent(Reactor& reactor, UniqueFd listener, Options options)
    : reactor_(reactor),
      listener_(std::move(listener)),
      options_(std::move(options)),
      generation_(reactor),
      freezer_(reactor, options_.users, generation_),
      fs_freezer_(reactor, workers_),
      processes_(reactor, options_.users),
      hosts_file_needed_(options_.owns_machine && !name_service_knows_host()) {
  listener_watch_ = reactor_.watch(listener_.get(), EPOLLIN, [this](uint32_t) { on_accept(); });
  generation_.set_on_change([this] {
    if (on_vmgenid_) std::exchange(on_vmgenid_, nullptr)();
  });
}

void Agent::reap() {
  processes_.reap([this](pid_t pid, int status) { workers_.on_child_exit(pid, status); });
}

// ---- sessions ----------------------------------------------------------------------------------------------------------

void Agent::on_accept() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) return accept_later();
  if (!fd || !comes_from_host(fd.get())) return;
  open_session(std::move(fd));
  if (sessions_.size() >= kMaxSessions) listener_watch_.set_events(0);  // the others wait in the backlog
}

// The listener stays readable: watched, it would keep the agent from everything else. Also a session that ends watches it
// again.
void Agent::accept_later() {
  listener_watch_.set_events(0);
  accept_timer_ = reactor_.after(kAcceptPause, [this] {
    if (sessions_.size() < kMaxSessions) listener_watch_.set_events(EPOLLIN);
  });
}

bool Agent::comes_from_host(int fd) const {
  if (!options_.check_peer_cid) return true;
  sockaddr_vm peer{};
  socklen_t length = sizeof peer;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 && peer.svm_cid == VMADDR_CID_HOST;
}

void Agent::open_session(UniqueFd fd) {
  const uint64_t id = next_session_++;
  Session& session = sessions_[id];
  session.id = id;
  Connection::Callbacks callbacks;
  callbacks.on_frame = [this, &session](std::string_view message) { on_frame(session, message); };
  callbacks.on_drained = [&session] {
    if (session.operation) session.operation->on_drained();
  };
  callbacks.on_closed = [this, id] { close_session(id); };
  callbacks.on_reset = [this] { freezer_.on_transport_reset(); };
  session.connection = std::make_unique<Connection>(reactor_, std::move(fd), std::move(callbacks));
}

void Agent::close_session(uint64_t id) {
  reactor_.defer([this, id] {
    const auto it = sessions_.find(id);
    if (it == sessions_.end()) return;
    const std::function<void()> on_abandoned = std::move(it->second.on_abandoned);
    sessions_.erase(it);
    if (on_abandoned) on_abandoned();
    listener_watch_.set_events(EPOLLIN);
  });
}

void Agent::on_frame(Session& session, std::string_view message) {
  const int size = static_cast<int>(message.size());
  if (session.requested) {
    abi::Input input;
    if (!input.ParseFromArray(message.data(), size))
      return answer_status(session, fail(ErrorKind::kInvalid, "a frame is not an Input message"));
    if (session.operation) session.operation->on_input(input);
    return;
  }
  session.requested = true;
  abi::Request request;
  if (!request.ParseFromArray(message.data(), size))
    return answer_status(session, fail(ErrorKind::kInvalid, "the first frame is not a Request message"));
  dispatch(session, request);
}

void Agent::answer(Session& session, abi::Event event) {
  session.on_abandoned = nullptr;
  session.connection->send(event);
  session.connection->finish();
}

void Agent::answer_later(uint64_t id, abi::Event event) {
  const auto it = sessions_.find(id);
  if (it != sessions_.end()) answer(it->second, std::move(event));
}

void Agent::answer_status(Session& session, const Status& status) {
  answer(session, status ? success_event() : result_event(status.error()));
}

// ---- requests ----------------------------------------------------------------------------------------------------------

void Agent::dispatch(Session& session, const abi::Request& r) {
  abi::Event event = success_event();
  switch (r.op_case()) {
    case abi::Request::kPing: {
      abi::Pong* pong = event.mutable_result()->mutable_pong();
      pong->set_version(RAMET_VERSION);
      pong->set_uptime_ns(uptime_ns());
      pong->set_frozen(freezer_.frozen());
      pong->set_identified(identified_);
      return answer(session, std::move(event));
    }
    case abi::Request::kMetrics:
      *event.mutable_result()->mutable_metrics() = read_metrics();
      return answer(session, std::move(event));
    case abi::Request::kProcesses:
      *event.mutable_result()->mutable_processes() = processes_.list();
      return answer(session, std::move(event));
    case abi::Request::kIdentify: return identify(session, r.identify());
    case abi::Request::kFreeze: return freeze(session, r.freeze());
    case abi::Request::kThaw: return answer_status(session, freezer_.thaw());
    case abi::Request::kShutdown: return shut_down(session, r.shutdown());
    case abi::Request::kExec: return exec(session, r.exec());
    case abi::Request::kAttach: return attach(session, r.attach());
    case abi::Request::kSignal: return signal(session, r.signal());
    case abi::Request::kWriteStdin: return write_stdin(session, r.write_stdin());
    case abi::Request::kResize: return resize(session, r.resize());
    case abi::Request::kFreezeFs: return freeze_fs(session, r.freeze_fs());
    case abi::Request::kThawFs:
      return fs_freezer_.thaw(
          [this, id = session.id](const Status& s) { answer_later(id, s ? success_event() : result_event(s.error())); });
    case abi::Request::kSyncFs: return run_disk_worker(session, sync_file_systems);
    case abi::Request::kDropCaches:
      if (!options_.owns_machine)
        return answer_status(session, fail(ErrorKind::kUnsupported, "this agent does not own a machine"));
      return run_disk_worker(session, drop_caches);
    case abi::Request::kRead:
    case abi::Request::kWrite:
    case abi::Request::kList:
    case abi::Request::kStat:
    case abi::Request::kMkdir:
    case abi::Request::kMove:
    case abi::Request::kRemove:
    case abi::Request::kPortConnect: return run_worker(session, r);
    case abi::Request::OP_NOT_SET: break;
  }
  answer_status(session, fail(ErrorKind::kUnsupported, "a request this agent does not know"));
}

void Agent::exec(Session& session, const abi::Exec& request) {
  const Result<std::shared_ptr<Process>> process = processes_.start(request, sandbox_id_);
  if (!process) return answer_status(session, tl::unexpected<Error>(process.error()));
  const Follow::Mode mode = request.detach() ? Follow::Mode::kOnlyStart : Follow::Mode::kStream;
  session.operation = std::make_unique<Follow>(*session.connection, *process, mode, Follow::From{});
}

void Agent::attach(Session& session, const abi::Attach& request) {
  const Result<std::shared_ptr<Process>> process = processes_.find(request.pid());
  if (!process) return answer_status(session, tl::unexpected<Error>(process.error()));
  auto follow = std::make_unique<Follow>(*session.connection, *process, Follow::Mode::kStream,
                                         Follow::From{request.stdout_offset(), request.stderr_offset()});
  Follow& following = *follow;
  session.operation = std::move(follow);
  following.pump();
}

void Agent::signal(Session& session, const abi::SendSignal& request) {
  if (request.signal() == 0 || request.signal() > 64)
    return answer_status(session,
                         fail(ErrorKind::kInvalid, "signal " + std::to_string(request.signal()) + " is not between 1 and 64"));
  const Result<std::shared_ptr<Process>> process = processes_.find(request.pid());
  if (!process) return answer_status(session, tl::unexpected<Error>(process.error()));
  answer_status(session, (*process)->signal(static_cast<int>(request.signal()), request.leader_only()));
}

void Agent::write_stdin(Session& session, const abi::WriteStdin& request) {
  const Result<std::shared_ptr<Process>> process = processes_.find(request.pid());
  if (!process) return answer_status(session, tl::unexpected<Error>(process.error()));
  if ((*process)->stdin_backlog() > kMaxStdinBacklog)
    return answer_status(session, fail(ErrorKind::kNoMemory,
                                       "process " + std::to_string(request.pid()) + " does not read its input; try later"));
  if (const Status queued = (*process)->write_stdin(request.bytes(), request.eof()); !queued)
    return answer_status(session, queued);
  (*process)->when_stdin_drained([this, id = session.id] { answer_later(id, success_event()); });
}

void Agent::resize(Session& session, const abi::ResizePty& request) {
  const Result<std::shared_ptr<Process>> process = processes_.find(request.pid());
  if (!process) return answer_status(session, tl::unexpected<Error>(process.error()));
  answer_status(session, (*process)->resize(request.size()));
}

// ---- identity and standstill -------------------------------------------------------------------------------------------

void Agent::identify(Session& session, const abi::Identify& request) {
  const MonotonicClock::time_point began_at = MonotonicClock::now();
  if (!options_.owns_machine) return answer_status(session, fail(ErrorKind::kUnsupported, "this agent does not own a machine"));
  if (const Status valid = validate(request); !valid) return answer_status(session, valid);
  if (const Status seeded = reseed(request.entropy()); !seeded) {
    abi::Event event = result_event(seeded.error());
    event.mutable_result()->mutable_error()->set_code(abi::ERROR_ENTROPY_NOT_CREDITED);
    return answer(session, std::move(event));
  }
  const auto go_on = [this, id = session.id, request, began_at] { finish_identify(id, request, began_at); };
  if (request.wait_vmgenid_ms() == 0 || generation_.changes() != identified_generation_) return go_on();
  on_vmgenid_ = [this, go_on] {
    vmgenid_timer_.cancel();
    go_on();
  };
  vmgenid_timer_ = reactor_.after(milliseconds_or(request.wait_vmgenid_ms(), 0), [this, go_on] {
    on_vmgenid_ = nullptr;
    go_on();
  });
}

void Agent::finish_identify(uint64_t id, const abi::Identify& request, MonotonicClock::time_point began_at) {
  if (!sessions_.contains(id)) return;  // the host gave up on us
  abi::Event event = success_event();
  abi::Identified& done = *event.mutable_result()->mutable_identified();
  done.set_crng_reseeded(true);
  done.set_vmgenid_changes(generation_.changes());
  done.set_vmgenid_seen(generation_.changes() != identified_generation_);
  if (const Status applied = apply_identity(request, MonotonicClock::now() - began_at, done); !applied)
    return answer_later(id, result_event(applied.error()));
  if (!request.sandbox_id().empty()) sandbox_id_ = request.sandbox_id();
  identified_++;
  identified_generation_ = generation_.changes();
  if (hosts_file_needed_ && !request.hostname().empty())
    (void)workers_.start(-1, [name = request.hostname()](int) { return update_hosts_file(name); }).has_value();
  if (request.thaw()) {
    if (const Status thawed = freezer_.thaw(); !thawed) return answer_later(id, result_event(thawed.error()));
    done.set_thawed(true);
  }
  done.set_took_us(microseconds(MonotonicClock::now() - began_at));
  answer_later(id, std::move(event));
}

void Agent::freeze(Session& session, const abi::Freeze& request) {
  session.on_abandoned = [this] { (void)freezer_.thaw().has_value(); };
  freezer_.freeze(milliseconds_or(request.deadline_ms(), kDefaultFreezeMs),
                  [this, id = session.id](const Result<Nanoseconds>& took) {
                    if (!took) return answer_later(id, result_event(took.error()));
                    abi::Event event = success_event();
                    event.mutable_result()->mutable_frozen()->set_took_us(microseconds(*took));
                    answer_later(id, std::move(event));
                  });
}

void Agent::freeze_fs(Session& session, const abi::FreezeFs& request) {
  if (!options_.owns_machine) return answer_status(session, fail(ErrorKind::kUnsupported, "this agent does not own a machine"));
  fs_freezer_.freeze(milliseconds_or(request.deadline_ms(), kDefaultFsFreezeMs),
                     milliseconds_or(request.hold_ms(), kDefaultFsHoldMs),
                     [this, id = session.id](const Result<Nanoseconds>& took) {
                       if (!took) return answer_later(id, result_event(took.error()));
                       abi::Event event = success_event();
                       event.mutable_result()->mutable_fs_frozen()->set_took_us(microseconds(*took));
                       answer_later(id, std::move(event));
                     });
}

void Agent::shut_down(Session& session, const abi::Shutdown& request) {
  answer_status(session, {});
  const Nanoseconds grace = milliseconds_or(request.grace_ms(), kDefaultGraceMs);
  // A moment for the answer to leave.
  shutdown_timer_ =
      reactor_.after(Milliseconds(20), [this, reboot = request.reboot(), grace] { options_.on_shutdown(reboot, grace); });
}

// ---- workers -----------------------------------------------------------------------------------------------------------

void Agent::run_worker(Session& session, const abi::Request& request) {
  Connection& connection = *session.connection;
  const Status started = workers_.start(connection.fd(), [&](int fd) {
    Channel channel(fd, connection.input());
    if (request.op_case() == abi::Request::kPortConnect) return run_port_connection(request.port_connect().port(), channel);
    return run_file_operation(request, channel);
  });
  if (!started) return answer_status(session, started);
  connection.abandon();
  close_session(session.id);
}

void Agent::run_disk_worker(Session& session, int (*body)()) {
  const Status started = workers_.start(
      -1, [body](int) { return body(); },
      [this, id = session.id](int err) {
        answer_later(id, err == 0 ? success_event() : result_event(fail_errno("disk operation", err).value()));
      });
  if (!started) answer_status(session, started);
}

}  // namespace ramet::guest
