#include "host/monitor_link.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "base/log.h"
#include "host/agent_client.h"  // printable

namespace ramet::host {
namespace {

// SO_PASSCRED before the connection: not even the first packet comes without its sender.
Result<UniqueFd> connect_with_credentials(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return fail(ErrorKind::kInvalid, "socket path '" + path + "' is too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno("create socket");
  const int on = 1;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0) return fail_errno("SO_PASSCRED");
  // The backlog is ours and nearly empty: connect does not block.
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0)
    return fail_errno("connect to " + path);
  return socket;
}

}  // namespace

Result<BootstrapPair> make_bootstrap_pair() {
  TRY_ASSIGN(SocketPair pair, make_socket_pair(SOCK_SEQPACKET));
  const int on = 1;
  if (::setsockopt(pair.a.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0) return fail_errno("SO_PASSCRED");
  return BootstrapPair{std::move(pair.a), std::move(pair.b)};
}

Error error_of(const vmm::Failure& f) { return Error(kind_from_name(f.kind()), printable(f.message(), 1024), f.err()); }

double ms_between(int64_t from_ns, int64_t to_ns) {
  int64_t ns = 0;
  if (__builtin_sub_overflow(to_ns, from_ns, &ns)) return 0;
  return static_cast<double>(ns) / 1e6;
}

Result<ReadyReport> await_ready(int socket, Deadline deadline, const OnUserfault& on_userfault) {
  for (bool first = true;; first = false) {
    TRY_ASSIGN(Received packet, receive_message(socket, vmm::control::kMaxControlBytes, deadline));
    if (packet.eof) return fail(ErrorKind::kUnavailable, "the monitor ended before it was ready");
    vmm::BootstrapReply reply;
    if (!reply.ParseFromString(packet.bytes))
      return fail(ErrorKind::kCorrupt, "the monitor's first packet is no BootstrapReply");
    if (reply.has_failed()) return tl::unexpected<Error>(error_of(reply.failed()));
    if (reply.has_ready()) return ReadyReport{reply.ready(), packet.sender_pid};
    if (!reply.has_userfault() || !first || !on_userfault)
      return fail(ErrorKind::kCorrupt, "the monitor's first packet says nothing that was asked for");
    ReceivedFds fds(std::move(packet.fds));
    TRY_ASSIGN(UniqueFd userfault, fds.take(reply.userfault().userfault_fd(), "userfault"));
    TRY(on_userfault(std::move(userfault), reply.userfault().ram_address()));
  }
}

Status send_commit(int socket) {
  vmm::BootstrapCommand command;
  command.set_commit(true);
  return vmm::control::send(socket, command, {}, deadline_after(Milliseconds(1000)));
}

Result<std::unique_ptr<MonitorLink>> MonitorLink::connect(Watcher& watcher, const std::string& path, pid_t expected,
                                                          Callbacks callbacks, Deadline deadline) {
  TRY_ASSIGN(UniqueFd socket, connect_with_credentials(path));
  std::unique_ptr<MonitorLink> link(new MonitorLink(watcher, std::move(socket), std::move(callbacks)));
  link->pid_ = expected;
  TRY_ASSIGN(const uint64_t token, watcher.watch(link->socket_.get(), [raw = link.get()] { raw->on_readable(); }));
  link->token_ = token;
  vmm::Request ping;
  ping.mutable_ping();
  Result<MonitorReply> pong = link->call(std::move(ping), {}, deadline);
  if (!pong) return tl::unexpected<Error>(std::move(pong).error().with_context("first word with the monitor at " + path));
  return link;
}

MonitorLink::~MonitorLink() {
  if (token_ != 0) watcher_.unwatch(token_);
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

bool MonitorLink::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

Result<MonitorReply> MonitorLink::call(vmm::Request request, const FdsToSend& fds, Deadline deadline) {
  uint64_t id;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return fail(ErrorKind::kUnavailable, "the monitor is gone");
    id = next_id_++;
    pending_[id];
  }
  request.set_id(id);
  const Status sent = vmm::control::send(socket_.get(), request, fds.fds(), deadline);
  std::unique_lock lock(mutex_);
  if (sent) changed_.wait_until(lock, deadline, [&] { return pending_[id].done; });
  Pending mine = std::move(pending_[id]);
  pending_.erase(id);
  lock.unlock();
  if (!sent && sent.error().kind() != ErrorKind::kTimeout) return fail(ErrorKind::kUnavailable, "the monitor is gone");
  if (!mine.done) return fail(ErrorKind::kTimeout, "the monitor did not answer in time");
  if (!mine.reply) return fail(ErrorKind::kUnavailable, "the monitor ended");
  if (mine.reply->response.has_failure()) return tl::unexpected<Error>(error_of(mine.reply->response.failure()));
  return std::move(*mine.reply);
}

Result<UniqueFd> MonitorLink::connect_guest(uint32_t port, Deadline deadline) {
  vmm::Request request;
  request.mutable_connect()->set_port(port);
  const Milliseconds left = time_left(deadline);
  request.mutable_connect()->set_deadline_ms(static_cast<uint32_t>(std::max<int64_t>(left.count(), 1)));
  TRY_ASSIGN(MonitorReply reply, call(std::move(request), {}, deadline + Milliseconds(500)));
  if (!reply.response.has_connected()) return fail(ErrorKind::kCorrupt, "the monitor answered Connect with something else");
  TRY_ASSIGN(UniqueFd stream, reply.fds.take(reply.response.connected().stream_fd(), "stream_fd"));
  // Only a stream socket may stand here: reading a file or a terminal it chose could block us for good.
  int domain = 0, type = 0;
  socklen_t length = sizeof domain;
  if (::getsockopt(stream.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length) < 0 || domain != AF_UNIX)
    return fail(ErrorKind::kCorrupt, "the monitor handed over a descriptor that is no unix socket");
  length = sizeof type;
  if (::getsockopt(stream.get(), SOL_SOCKET, SO_TYPE, &type, &length) < 0 || type != SOCK_STREAM)
    return fail(ErrorKind::kCorrupt, "the monitor handed over a socket that is no stream");
  return stream;
}

void MonitorLink::on_readable() {
  if (closed()) return;
  for (int i = 0; i < 64; i++) {  // then others have their turn
    Result<Received> packet = receive_message(socket_.get(), vmm::control::kMaxControlBytes, MonotonicClock::now());
    if (!packet && packet.error().kind() == ErrorKind::kTimeout) return;
    if (!packet || packet->eof || !take_packet(std::move(*packet))) {
      close_link();
      return;
    }
  }
}

// False: the link is of no further use.
bool MonitorLink::take_packet(Received packet) {
  if (pid_ == 0) pid_ = packet.sender_pid;
  if (packet.sender_pid != pid_) {
    log_warn("control packet from process " + std::to_string(packet.sender_pid) + " instead of " + std::to_string(pid_) +
             ": link ended");
    return false;
  }
  vmm::FromVmm message;
  if (!message.ParseFromString(packet.bytes)) return false;
  if (message.has_event()) {
    if (callbacks_.event) callbacks_.event(message.event());
    return true;
  }
  if (!message.has_response()) return false;
  const std::lock_guard lock(mutex_);
  const auto it = pending_.find(message.response().id());
  if (it == pending_.end()) return true;  // its caller gave up; descriptors close with the packet
  it->second.reply = MonitorReply{std::move(*message.mutable_response()), ReceivedFds(std::move(packet.fds))};
  it->second.done = true;
  changed_.notify_all();
  return true;
}

void MonitorLink::close_link() {
  watcher_.mute(token_);
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    for (auto& [id, p] : pending_) p.done = true;
    changed_.notify_all();
  }
  if (callbacks_.closed) callbacks_.closed();
}

}  // namespace ramet::host
