#include "vmm/control/server.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/socket.h"

namespace ramet::vmm::control {
namespace {
constexpr int kRequestsPerRound = 16;      // then other descriptors get their turn
constexpr Milliseconds kAcceptPause{100};  // between two tries while there is no descriptor
}  // namespace

Server::~Server() {
  cancel_accept_later();
  if (connection_) loop_.remove(connection_.get());
  if (listener_) loop_.remove(listener_.get());
}

void Server::after_fork() {
  connection_.reset();
  listener_.reset();
  accept_timer_.reset();  // gone with all of the parent's
  queue_.clear();
  watching_writable_ = false;
  connection_number_++;  // tickets of the parent's connection are void here
}

Status Server::listen(UniqueFd listener) {
  int listening = 0, type = 0;
  socklen_t length = sizeof listening;
  if (::getsockopt(listener.get(), SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) < 0 || listening == 0)
    return fail(ErrorKind::kInvalid, "the control descriptor is not a listening socket");
  length = sizeof type;
  if (::getsockopt(listener.get(), SOL_SOCKET, SO_TYPE, &type, &length) < 0 || type != SOCK_SEQPACKET)
    return fail(ErrorKind::kInvalid, "the control socket is not of type SOCK_SEQPACKET");
  TRY(set_nonblocking(listener.get(), true));
  listener_ = std::move(listener);
  return loop_.add(listener_.get(), EPOLLIN, [this](uint32_t) { accept(); });
}

UniqueFd Server::accept_one() const {
  return UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

void Server::accept() {
  UniqueFd fd = accept_one();
  if (!fd && connection_ && (errno == EMFILE || errno == ENFILE)) {
    disconnect();
    fd = accept_one();
  }
  if (!fd && errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) return accept_later();
  if (!fd) return;
  accepts_later_ = false;
  // Queued responses belong to the old connection; events stay for the new one.
  disconnect();
  connection_ = std::move(fd);
  connection_number_++;
  const Status added = loop_.add(connection_.get(), EPOLLIN, [this](uint32_t events) { on_connection(events); });
  if (!added) {
    connection_.reset();
    return;
  }
  send_queued();
}

// The listener stays readable: watched, it would keep the loop from everything else.
void Server::accept_later() {
  const Error why = fail_errno("accept").value();
  if (!std::exchange(accepts_later_, true)) log_warn("control: a new connection waits: " + why.to_string());
  if (!loop_.modify(listener_.get(), 0)) return;
  accept_timer_ = loop_.add_timer(deadline_after(kAcceptPause), [this] {
    accept_timer_.reset();
    if (!loop_.modify(listener_.get(), EPOLLIN)) log_error("control: new connections are not heard of any more");
  });
}

void Server::cancel_accept_later() {
  if (accept_timer_) loop_.cancel_timer(*accept_timer_);
  accept_timer_.reset();
}

void Server::disconnect() {
  if (!connection_) return;
  loop_.remove(connection_.get());
  connection_.reset();
  connection_number_++;
  watching_writable_ = false;
  std::erase_if(queue_, [](const Packet& p) { return !p.event; });
}

void Server::on_connection(uint32_t events) {
  const uint64_t number = connection_number_;
  if (events & EPOLLOUT) send_queued();
  if (number == connection_number_ && (events & (EPOLLIN | EPOLLHUP | EPOLLERR))) read_requests();
}

void Server::read_requests() {
  const uint64_t number = connection_number_;
  for (int i = 0; i < kRequestsPerRound && connection_ && number == connection_number_; i++) {
    Request request;
    Result<ReceivedFds> fds = receive(connection_.get(), request, MonotonicClock::now());
    if (!fds && fds.error().kind() == ErrorKind::kTimeout) return;
    if (!fds) {
      if (fds.error().kind() != ErrorKind::kUnavailable) log_warn("control: " + fds.error().to_string());
      disconnect();
      return;
    }
    if (request.id() == 0) {
      log_warn("control: request without id");
      disconnect();
      return;
    }
    handler_({number, request.id()}, request, *std::move(fds));
  }
}

void Server::respond(Ticket ticket, Response response, std::span<const int> fds) {
  if (!connection_ || ticket.connection != connection_number_) return;
  response.set_id(ticket.request);
  FromVmm message;
  *message.mutable_response() = std::move(response);
  Packet packet;
  packet.bytes = message.SerializeAsString();
  for (const int fd : fds) {
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
      respond_error(ticket, Error(ErrorKind::kNoSpace, "no descriptor left for the answer", errno));
      return;
    }
    packet.fds.emplace_back(copy);
  }
  enqueue(std::move(packet));
}

void Server::respond_ok(Ticket ticket) {
  Response r;
  r.mutable_ok();
  respond(ticket, std::move(r));
}

void Server::respond_error(Ticket ticket, const Error& error) {
  Response r;
  *r.mutable_failure() = to_failure(error);
  respond(ticket, std::move(r));
}

void Server::send_event(const Event& event) {
  FromVmm message;
  *message.mutable_event() = event;
  enqueue({true, message.SerializeAsString(), {}});
}

void Server::enqueue(Packet packet) {
  if (queue_.size() >= kMaxQueuedPackets && connection_) {
    log_warn("control: the peer does not read, connection dropped");
    disconnect();
    if (!packet.event) return;
  }
  if (queue_.size() >= kMaxQueuedPackets) queue_.pop_front();  // nobody came for it: the oldest event is lost
  queue_.push_back(std::move(packet));
  send_queued();
}

void Server::send_queued() {
  while (connection_ && !queue_.empty()) {
    const Packet& p = queue_.front();
    std::vector<int> fds;
    for (const UniqueFd& fd : p.fds) fds.push_back(fd.get());
    const Status sent = send_message(connection_.get(), as_bytes(p.bytes), fds, MonotonicClock::now());
    if (sent) {
      queue_.pop_front();
      continue;
    }
    if (sent.error().kind() != ErrorKind::kTimeout) {
      disconnect();
      return;
    }
    if (!watching_writable_ && loop_.modify(connection_.get(), EPOLLIN | EPOLLOUT)) watching_writable_ = true;
    return;
  }
  if (connection_ && watching_writable_ && loop_.modify(connection_.get(), EPOLLIN)) watching_writable_ = false;
}

void Server::flush(Deadline deadline) {
  while (connection_ && !queue_.empty() && time_left(deadline).count() > 0) {
    if (!wait_for(connection_.get(), POLLOUT, deadline)) return;
    send_queued();
  }
}

}  // namespace ramet::vmm::control
