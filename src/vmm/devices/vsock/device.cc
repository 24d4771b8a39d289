#include "vmm/devices/vsock/device.h"

#include <linux/virtio_ids.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace ramet::vmm {

using vsock::After;
using vsock::Gate;
using vsock::Packet;

namespace {

// What one call may do before it leaves the rest to the event loop: a guest that never stops cannot hold the mutex for long.
constexpr int kPacketsTakenPerCall = 256;
constexpr int kPacketsSentPerCall = 128;
constexpr uint32_t kMaxPayload = 64 * 1024;
constexpr uint32_t kFirstPort = 1u << 20;  // above what programs choose by name
constexpr uint32_t kLastPort = 0xffff'0000;

// Bytes promised to the guest (buf_alloc) for a new stream: 64 x 256 KiB + 448 x 32 KiB = 30 MiB is the most the device ever
// holds.
constexpr uint32_t promise_for(size_t streams) { return streams < 64 ? 256 * 1024 : 32 * 1024; }

}  // namespace

VsockDevice::~VsockDevice() {
  if (!loop_) return;
  if (timer_) loop_->cancel_timer(timer_);
  for (const auto& [port, stream] : streams_) loop_->remove(stream.connection->socket());
  for (const UniqueFd& fd : dying_) loop_->remove(fd.get());
}

// ---- the host's side

void VsockDevice::use_loop(EventLoop& loop) {
  const std::lock_guard lock(*mutex_);
  loop_ = &loop;
}

void VsockDevice::connect(uint32_t port, Deadline deadline, ConnectCallback callback) {
  std::unique_lock lock(*mutex_);
  Result<Stream*> stream = open_stream(port, deadline);
  if (stream) {
    (*stream)->callback = std::move(callback);
  } else {
    answers_.push_back({std::move(callback), tl::unexpected(std::move(stream).error())});
    schedule();
  }
  if (gate_ != Gate::kOpen) announce_reset();
  send_packets();
  arm_timer();
}

Result<VsockDevice::Stream*> VsockDevice::open_stream(uint32_t port, Deadline deadline) {
  if (!active_) return fail(ErrorKind::kUnavailable, "the guest has no vsock driver yet");
  if (streams_.size() >= kMaxConnections)
    return fail(ErrorKind::kUnavailable, "the guest has " + std::to_string(kMaxConnections) + " streams already");
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) return fail_errno("make the ends of a guest stream");
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const uint32_t host_port = fresh_port();
  TRY(loop_->add(ours.get(), EPOLLIN | EPOLLRDHUP | EPOLLET,
                 [this, host_port](uint32_t events) { on_socket(host_port, events); }));
  Stream& stream = streams_[host_port];
  stream.connection = std::make_unique<Connection>(vsock::StreamPorts{host_port, port}, std::move(ours),
                                                   promise_for(streams_.size() - 1), deadline);
  stream.theirs = std::move(theirs);
  queue_to_send(host_port, stream);
  return &stream;
}

// A number not used for about four billion streams: a late packet of an old stream never meets a new one.
uint32_t VsockDevice::fresh_port() {
  do {
    last_port_ = last_port_ >= kFirstPort && last_port_ < kLastPort ? last_port_ + 1 : kFirstPort;
  } while (streams_.contains(last_port_));
  return last_port_;
}

VsockMetrics VsockDevice::metrics() const {
  const std::lock_guard lock(*mutex_);
  VsockMetrics m = metrics_;
  m.connections = streams_.size();
  for (const auto& [port, stream] : streams_) m.held_bytes += stream.connection->held_bytes();
  return m;
}

void VsockDevice::schedule() {
  if (scheduled_ || !loop_) return;
  scheduled_ = true;
  loop_->post([this] { on_loop(); });
}

void VsockDevice::on_loop() {
  std::unique_lock lock(*mutex_);
  scheduled_ = false;
  if (packets_left_) take_packets();
  send_packets();
  serve_and_unlock(std::move(lock));
}

void VsockDevice::on_socket(uint32_t host_port, uint32_t epoll_events) {
  std::unique_lock lock(*mutex_);
  const Streams::iterator stream = streams_.find(host_port);
  if (stream == streams_.end()) return;  // finished by the guest in the meantime
  settle(stream, stream->second.connection->on_socket(epoll_events, MonotonicClock::now()));
  send_packets();
  serve_and_unlock(std::move(lock));
}

// What only the loop's thread may do; callbacks run without the mutex.
void VsockDevice::serve_and_unlock(std::unique_lock<std::mutex> lock) {
  for (const UniqueFd& fd : dying_) loop_->remove(fd.get());
  dying_.clear();
  for (const uint32_t port : watch_changes_) {
    const Streams::iterator it = streams_.find(port);
    if (it == streams_.end()) continue;
    Stream& stream = it->second;
    stream.watched_for_writing = stream.connection->holds_data();
    const uint32_t out = stream.watched_for_writing ? EPOLLOUT : 0u;
    // Changing a watch looks at the socket again, so an edge that came in between is not lost.
    if (!loop_->modify(stream.connection->socket(), EPOLLIN | EPOLLRDHUP | EPOLLET | out))
      forget(it, Error(ErrorKind::kInternal, "epoll"));
  }
  watch_changes_.clear();
  arm_timer();
  std::vector<Answer> due;
  due.swap(answers_);
  lock.unlock();
  for (Answer& answer : due) answer.callback(std::move(answer.result));
}

void VsockDevice::expire(Deadline now) {
  for (Streams::iterator it = streams_.begin(); it != streams_.end();) {
    const Streams::iterator stream = it++;
    const Connection& c = *stream->second.connection;
    if (!c.deadline() || *c.deadline() > now) continue;
    if (c.state() == Connection::State::kRequesting) metrics_.timed_out++;
    if (c.request_sent()) send_reset(reset_of(c));
    forget(stream,
           Error(ErrorKind::kTimeout, "the guest did not answer on port " + std::to_string(c.ports().guest) + " in time"));
  }
}

void VsockDevice::arm_timer() {
  Deadline next = Deadline::max();
  for (const auto& [port, stream] : streams_)
    if (stream.connection->deadline()) next = std::min(next, *stream.connection->deadline());
  if (timer_ && next == timer_at_) return;
  if (timer_) loop_->cancel_timer(timer_);
  timer_ = 0;
  if (next == Deadline::max()) return;
  timer_at_ = next;
  timer_ = loop_->add_timer(next, [this] {
    std::unique_lock lock(*mutex_);
    timer_ = 0;
    expire(MonotonicClock::now());
    send_packets();
    serve_and_unlock(std::move(lock));
  });
}

// ---- the guest's side

uint32_t VsockDevice::device_id() const { return VIRTIO_ID_VSOCK; }

void VsockDevice::read_config(uint64_t offset, std::span<std::byte> out) const {
  const le64 guest_cid = vsock::kGuestCid;
  std::fill(out.begin(), out.end(), std::byte{0});
  if (offset < sizeof guest_cid)
    std::memcpy(out.data(), reinterpret_cast<const char*>(&guest_cid) + offset,
                std::min<size_t>(out.size(), sizeof guest_cid - offset));
}

void VsockDevice::activate(const DeviceContext& context) {
  context_ = context;
  active_ = true;  // memory stays untouched here: a restored machine that never runs has written nothing
}

void VsockDevice::queue_notify(uint16_t index) {
  if (!active_ || quiesced_) return;
  if (gate_ != Gate::kOpen) announce_reset();
  if (index == kTxQueue) take_packets();
  send_packets();
}

void VsockDevice::reset() {
  forget_all(ErrorKind::kUnavailable, "the guest reset its vsock device");
  active_ = packets_left_ = false;
  gate_ = Gate::kOpen;
  context_ = {};
}

Status VsockDevice::quiesce(Deadline) {
  quiesced_ = true;  // nothing is ever half done: each step ends within the mutex
  return {};
}

void VsockDevice::resume() { quiesced_ = false; }

void VsockDevice::interrupt_if_wanted(Queue& q) {
  if (q.needs_interrupt()) context_.raise_used();
}

void VsockDevice::take_packets() {
  if (!active_ || quiesced_) return;
  Queue& tx = queue(kTxQueue);
  packets_left_ = true;
  int budget = kPacketsTakenPerCall;
  while (budget-- > 0) {
    if (tx.pop(chain_) != Queue::Pop::kChain) {
      packets_left_ = false;
      break;
    }
    take_packet(chain_);
    tx.push_used(chain_.head(), 0);
  }
  interrupt_if_wanted(tx);
  if (packets_left_) schedule();
}

void VsockDevice::take_packet(const DescriptorChain& chain) {
  metrics_.packets_from_guest++;
  vsock::WireHeader wire;
  if (!chain.read(*context_.memory, 0, std::as_writable_bytes(std::span(&wire, 1)))) {
    metrics_.malformed++;
    return;
  }
  const Packet packet = vsock::decode(wire);
  const vsock::Verdict verdict =
      vsock::check_from_guest(packet, vsock::kGuestCid, chain.readable_bytes() - vsock::kHeaderBytes);
  if (verdict != vsock::Verdict::kGood) metrics_.malformed++;
  if (verdict == vsock::Verdict::kDrop) return;
  const Streams::iterator stream = streams_.find(packet.dst_port);
  if (stream == streams_.end() || stream->second.connection->ports().guest != packet.src_port) {
    if (packet.op != vsock::Op::kRst) send_reset(vsock::reset_for(packet));
    return;
  }
  pieces_.clear();
  if (verdict == vsock::Verdict::kReset || !chain.readable_iovecs(*context_.memory, vsock::kHeaderBytes, packet.len, pieces_)) {
    settle(stream, After::kFinishedWithReset);
    return;
  }
  metrics_.bytes_from_guest += packet.len;
  settle(stream, stream->second.connection->on_packet(packet, pieces_));
}

void VsockDevice::send_packets() {
  if (!may_send()) return;
  Queue& rx = queue(kRxQueue);
  bool have_chain = false;
  int budget = kPacketsSentPerCall;
  while (!resets_.empty() || !senders_.empty()) {
    if (budget-- == 0) {
      schedule();
      break;
    }
    if (!have_chain && rx.pop(rx_chain_) != Queue::Pop::kChain) break;  // the driver kicks when it adds the next
    have_chain = true;
    uint32_t written = 0;
    if (rx_chain_.writable_bytes() >= vsock::kHeaderBytes) {
      const std::optional<Packet> packet = next_packet(rx_chain_);
      if (!packet) continue;
      const vsock::WireHeader wire = vsock::encode(*packet);
      if (rx_chain_.write(*context_.memory, 0, std::as_bytes(std::span(&wire, 1)))) written = vsock::kHeaderBytes + packet->len;
      metrics_.packets_to_guest++;
      metrics_.bytes_to_guest += packet->len;
    } else {
      metrics_.malformed++;
    }
    rx.push_used(rx_chain_.head(), written);
    have_chain = false;
  }
  if (have_chain) rx.undo_pop();
  interrupt_if_wanted(rx);
}

// The next packet of whoever is first in line, its payload already in the chain. nullopt: that one had nothing to say after
// all.
std::optional<Packet> VsockDevice::next_packet(const DescriptorChain& chain) {
  if (!resets_.empty()) {
    const Packet packet = resets_.front();
    resets_.pop_front();
    metrics_.resets_sent++;
    return packet;
  }
  const uint32_t host_port = senders_.front();
  senders_.pop_front();
  const Streams::iterator it = streams_.find(host_port);
  if (it == streams_.end()) return std::nullopt;
  Stream& stream = it->second;
  stream.queued_to_send = false;
  const uint64_t room =
      std::min<uint64_t>({stream.connection->send_window(), chain.writable_bytes() - vsock::kHeaderBytes, kMaxPayload});
  pieces_.clear();
  if (!chain.writable_iovecs(*context_.memory, vsock::kHeaderBytes, room, pieces_)) pieces_.clear();
  const std::optional<Packet> packet = stream.connection->next_packet(pieces_, MonotonicClock::now());
  if (packet) queue_to_send(host_port, stream);
  return packet;
}

void VsockDevice::announce_reset() {
  if (!active_ || quiesced_) return;
  Queue& events = queue(kEventQueue);
  while (gate_ == Gate::kMustAnnounce) {
    if (events.pop(chain_) != Queue::Pop::kChain) return;  // the driver kicks when it adds a buffer
    const std::optional<uint16_t> available = events.watch_available();
    const le32 event = vsock::kEventTransportReset;
    const bool told = available && chain_.write(*context_.memory, 0, std::as_bytes(std::span(&event, 1)));
    events.push_used(chain_.head(), told ? sizeof event : 0);
    if (!told) continue;
    announced_at_ = *available;
    gate_ = Gate::kAnnounced;
    metrics_.transport_resets++;
    interrupt_if_wanted(events);
  }
  if (gate_ != Gate::kAnnounced) return;
  const std::optional<uint16_t> available = events.watch_available();
  if (available && *available != announced_at_) gate_ = Gate::kOpen;  // the buffer is back, so the event was handled
}

// ---- streams

void VsockDevice::settle(Streams::iterator it, After after) {
  Stream& stream = it->second;
  Connection& c = *stream.connection;
  if (after == After::kFinishedWithReset) send_reset(reset_of(c));
  if (after != After::kContinue) {
    if (c.state() == Connection::State::kRequesting) metrics_.refused++;
    forget(it, Error(ErrorKind::kUnavailable, "the guest refused a stream to port " + std::to_string(c.ports().guest)));
    return;
  }
  if (stream.callback && c.state() == Connection::State::kEstablished) {
    metrics_.opened++;
    answers_.push_back({std::move(stream.callback), std::move(stream.theirs)});
    stream.callback = nullptr;
    schedule();
  }
  queue_to_send(it->first, stream);
  if (c.holds_data() != stream.watched_for_writing) {
    watch_changes_.push_back(it->first);
    schedule();
  }
}

void VsockDevice::forget(Streams::iterator it, Error reason) {
  Stream& stream = it->second;
  if (stream.callback) answers_.push_back({std::move(stream.callback), tl::unexpected(std::move(reason))});
  UniqueFd socket = stream.connection->take_socket();
  ::shutdown(socket.get(), SHUT_RDWR);  // the host sees the end now, not when the loop comes round to closing
  dying_.push_back(std::move(socket));
  streams_.erase(it);
  schedule();
}

void VsockDevice::forget_all(ErrorKind kind, const char* reason) {
  while (!streams_.empty()) forget(streams_.begin(), Error(kind, reason));
  senders_.clear();
  resets_.clear();
}

void VsockDevice::queue_to_send(uint32_t host_port, Stream& stream) {
  if (stream.queued_to_send || !stream.connection->wants_to_send()) return;
  stream.queued_to_send = true;
  senders_.push_back(host_port);
}

void VsockDevice::send_reset(const Packet& packet) {
  if (resets_.size() >= kMaxResets) {
    metrics_.resets_dropped++;  // only a flood comes here; its sender waits for its own time-out
    return;
  }
  resets_.push_back(packet);
}

Packet VsockDevice::reset_of(const Connection& connection) const {
  Packet p;
  p.src_cid = vsock::kHostCid;
  p.dst_cid = vsock::kGuestCid;
  p.src_port = connection.ports().host;
  p.dst_port = connection.ports().guest;
  p.op = vsock::Op::kRst;
  return p;
}

// ---- another process

std::string VsockDevice::save() const { return vsock::encode_state({last_port_, gate_, announced_at_}); }

Status VsockDevice::restore(std::string_view bytes) {
  TRY_ASSIGN(const vsock::State state, vsock::decode_state(bytes));
  last_port_ = state.last_port;
  announced_at_ = state.announced_at;
  gate_ = state.gate == Gate::kAnnounced ? Gate::kAnnounced : Gate::kMustAnnounce;
  quiesced_ = true;  // until resume()
  return {};
}

void VsockDevice::after_fork() {
  loop_ = nullptr;  // the parent's
  timer_ = 0;
  scheduled_ = false;
  streams_.clear();  // closes; a shutdown(2) here would reach the parent's streams, which share the sockets
  senders_.clear();
  resets_.clear();
  answers_.clear();
  dying_.clear();
  watch_changes_.clear();
  packets_left_ = false;  // resume() kicks every queue
  metrics_ = {};
  if (!active_) return;
  // An event that the driver had not taken at the fork is there in this copy of the machine, too, and will do.
  if (gate_ == Gate::kOpen) gate_ = Gate::kMustAnnounce;
}

}  // namespace ramet::vmm
