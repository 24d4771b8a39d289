#include "vmm/devices/vsock/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace ramet::vmm::vsock {

Connection::Connection(StreamPorts ports, UniqueFd ours, uint32_t buf_alloc, Deadline connect_deadline)
    : ports_(ports), ours_(std::move(ours)), buf_alloc_(buf_alloc), deadline_(connect_deadline) {}

// ---- guest to host

After Connection::on_packet(const Packet& packet, std::span<const iovec> payload) {
  take_peer_credit(packet);
  if (state_ == State::kDraining) return After::kContinue;  // late answers of a guest that is done with it
  if (packet.op == Op::kRst) {
    const bool orderly = guest_shutdown_ & kShutdownSend;
    if (state_ != State::kEstablished || !orderly || !holds_data()) return After::kFinished;
    state_ = State::kDraining;  // its last bytes still reach a host that reads slowly
    deadline_.reset();
    return After::kContinue;
  }
  switch (state_) {
    case State::kRequesting:
      if (packet.op != Op::kResponse || !request_sent_) return After::kFinishedWithReset;
      state_ = State::kEstablished;
      deadline_.reset();
      return After::kContinue;
    case State::kEstablished: return on_established(packet, payload);
    case State::kDraining: break;
  }
  return After::kContinue;
}

void Connection::take_peer_credit(const Packet& packet) {
  peer_buf_alloc_ = packet.buf_alloc;
  peer_forwarded_ = packet.fwd_cnt;
}

After Connection::on_established(const Packet& packet, std::span<const iovec> payload) {
  switch (packet.op) {
    case Op::kRw: return on_data(packet, payload);
    case Op::kShutdown: return on_shutdown(packet.flags);
    case Op::kCreditUpdate: return After::kContinue;
    case Op::kCreditRequest: credit_wanted_ = true; return After::kContinue;
    default: return After::kFinishedWithReset;
  }
}

After Connection::on_data(const Packet& packet, std::span<const iovec> payload) {
  const uint32_t in_buffer = received_ - forwarded_;
  if (packet.len > buf_alloc_ - in_buffer || (guest_shutdown_ & kShutdownSend)) return After::kFinishedWithReset;
  received_ += packet.len;
  if (!host_reads_) {
    forwarded(packet.len);
    return After::kContinue;
  }
  const size_t written = holds_data() ? 0 : write_now(payload, packet.len);
  forwarded(written);
  if (!host_reads_) {
    forwarded(packet.len - written);
    return After::kContinue;
  }
  if (written < packet.len) hold(payload, written);
  return flush();
}

// Bytes the socket took.
size_t Connection::write_now(std::span<const iovec> payload, size_t bytes) {
  if (bytes == 0) return 0;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(payload.data());
  message.msg_iovlen = std::min<size_t>(payload.size(), IOV_MAX);
  ssize_t n;
  do {
    n = ::sendmsg(ours_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n >= 0) return static_cast<size_t>(n);
  if (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM) host_stopped_reading();
  return 0;
}

void Connection::hold(std::span<const iovec> payload, size_t skip) {
  for (const iovec& piece : payload) {
    if (skip >= piece.iov_len) {
      skip -= piece.iov_len;
      continue;
    }
    const std::byte* from = static_cast<const std::byte*>(piece.iov_base);
    held_.insert(held_.end(), from + skip, from + piece.iov_len);
    skip = 0;
  }
}

After Connection::flush() {
  while (holds_data() && host_reads_) {
    const iovec piece{held_.data() + held_head_, held_bytes()};
    const size_t written = write_now({&piece, 1}, piece.iov_len);
    if (written == 0) break;
    held_head_ += written;
    forwarded(written);
  }
  if (!holds_data()) {
    std::vector<std::byte>().swap(held_);  // an idle stream keeps no memory
    held_head_ = 0;
  } else if (held_head_ > held_.size() / 2) {
    held_.erase(held_.begin(), held_.begin() + static_cast<ptrdiff_t>(held_head_));
    held_head_ = 0;
  }
  return end_if_done();
}

After Connection::end_if_done() {
  if (holds_data()) return After::kContinue;
  if (state_ == State::kDraining) return After::kFinished;
  if ((guest_shutdown_ & kShutdownBoth) == kShutdownBoth) return After::kFinishedWithReset;
  if ((guest_shutdown_ & kShutdownSend) && !write_end_shut_) {
    write_end_shut_ = true;
    ::shutdown(ours_.get(), SHUT_WR);
  }
  return After::kContinue;
}

After Connection::on_shutdown(uint32_t flags) {
  if ((flags & kShutdownReceive) && !(guest_shutdown_ & kShutdownReceive)) ::shutdown(ours_.get(), SHUT_RD);
  guest_shutdown_ |= flags;
  return flush();
}

void Connection::forwarded(size_t bytes) {
  forwarded_ += static_cast<uint32_t>(bytes);
  if (forwarded_ - forwarded_told_ >= buf_alloc_ / 4) credit_wanted_ = true;
}

void Connection::host_stopped_reading() {
  if (!host_reads_) return;
  host_reads_ = false;
  forwarded(held_bytes());
  held_.clear();
  held_head_ = 0;
  shutdown_wanted_ |= kShutdownReceive;
}

// ---- host to guest

After Connection::on_socket(uint32_t epoll_events, Deadline now) {
  if (epoll_events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) readable_ = true;
  if (epoll_events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) end_announced_ = true;
  // After our own shutdown of one direction the host's of the other looks like a close, and is one.
  if ((epoll_events & (EPOLLHUP | EPOLLERR)) && !host_closed_) {
    host_closed_ = true;
    host_stopped_reading();
    if (guest_shutdown_ & kShutdownReceive) shutdown_wanted_ |= kShutdownSend;  // nobody will read up to the end
    if (state_ == State::kEstablished) deadline_ = now + kLinger;
  }
  if (state_ == State::kRequesting) return After::kContinue;
  return flush();
}

uint32_t Connection::send_window() const {
  if (state_ != State::kEstablished || !readable_ || host_ended_ || (guest_shutdown_ & kShutdownReceive)) return 0;
  const uint32_t in_flight = sent_ - peer_forwarded_;
  return in_flight < peer_buf_alloc_ ? peer_buf_alloc_ - in_flight : 0;
}

bool Connection::wants_to_send() const {
  if (state_ == State::kDraining) return false;
  if (state_ == State::kRequesting) return !request_sent_;
  return credit_wanted_ || (shutdown_wanted_ & ~shutdown_sent_) || send_window() > 0;
}

std::optional<Packet> Connection::next_packet(std::span<const iovec> room, Deadline now) {
  if (state_ == State::kDraining) return std::nullopt;
  std::optional<Packet> out;
  if (state_ == State::kRequesting) {
    if (request_sent_) return std::nullopt;
    request_sent_ = true;
    out = packet(Op::kRequest);
  } else if (send_window() > 0 && !room.empty()) {
    size_t wanted = 0;
    for (const iovec& piece : room) wanted += piece.iov_len;
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(room.data());
    message.msg_iovlen = std::min<size_t>(room.size(), IOV_MAX);
    ssize_t n;
    do {
      n = ::recvmsg(ours_.get(), &message, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
      if (static_cast<size_t>(n) < wanted && !end_announced_) readable_ = false;  // drained; epoll tells when there is more
      sent_ += static_cast<uint32_t>(n);
      if (host_closed_) deadline_ = now + kLinger;
      out = packet(Op::kRw);
      out->len = static_cast<uint32_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      readable_ = false;
    } else {
      read_failed_or_ended();
    }
  }
  if (!out && (shutdown_wanted_ & ~shutdown_sent_)) {
    shutdown_sent_ |= shutdown_wanted_;
    out = packet(Op::kShutdown);
    out->flags = shutdown_sent_;
  }
  if (!out && credit_wanted_) out = packet(Op::kCreditUpdate);
  if (!out) return std::nullopt;
  credit_wanted_ = false;  // every packet carries the credit
  forwarded_told_ = forwarded_;
  return out;
}

void Connection::read_failed_or_ended() {
  host_ended_ = true;
  readable_ = false;
  shutdown_wanted_ |= kShutdownSend;
}

Packet Connection::packet(Op op) const {
  Packet p;
  p.src_cid = kHostCid;
  p.dst_cid = kGuestCid;
  p.src_port = ports_.host;
  p.dst_port = ports_.guest;
  p.op = op;
  p.buf_alloc = buf_alloc_;
  p.fwd_cnt = forwarded_;
  return p;
}

}  // namespace ramet::vmm::vsock
