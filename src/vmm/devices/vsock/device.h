// vmm/devices/vsock/device.h - the virtio-vsock device: streams from the host to ports of the guest. connect() answers with one
// end of a socketpair; the other end is served here. A guest that asks for a stream to the host is refused (RST). Not here: the
// protocol of one stream (connection.h), packets as bytes (packet.h), what is spoken over a stream (src/abi).
//
// Threads: the vCPU's thread takes packets from the guest and answers at once (queue_notify); the event loop's thread serves
// sockets, deadlines and callbacks. Both hold the device mutex, neither blocks or works without bound: what is left over is
// posted to the loop.
//
// Bounds: kMaxConnections streams, each holding at most what was promised to the guest (see promise_for), kMaxResets unsent
// answers.
//
// Fork and restore: a child has no streams (its copies of the sockets are closed; the parent's go on), tells the driver by a
// TRANSPORT_RESET event, and sends nothing else until the driver has taken the event (state.h, Gate). Streams asked for
// meanwhile wait within their deadlines. Callbacks of the parent's pending connects are dropped in the child, not called.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "vmm/devices/vsock/connection.h"
#include "vmm/devices/vsock/metrics.h"
#include "vmm/devices/vsock/state.h"
#include "vmm/event_loop.h"
#include "vmm/virtio/device.h"
#include "vmm/virtio/queue.h"

namespace ramet::vmm {

class VsockDevice final : public VirtioDevice {
 public:
  static constexpr size_t kMaxConnections = 512;
  static constexpr size_t kMaxResets = 256;
  static constexpr uint16_t kQueueSize = 256;
  enum : uint16_t { kRxQueue = 0, kTxQueue = 1, kEventQueue = 2 };  // section 5.10.2

  using ConnectCallback = std::function<void(Result<UniqueFd>)>;

  VsockDevice() = default;
  ~VsockDevice() override;

  // The loop that serves the host's ends: before the first connect(), and in a forked child once it has a new one, before the
  // transport resumes. The loop must not run this device's work after the device is gone.
  void use_loop(EventLoop& loop);

  // Opens a stream to a guest port; the callback gets our caller's end, a blocking SOCK_STREAM socket. It is called on the
  // loop's thread, never from within connect().   Thread: the loop's, device mutex not held. Errors (through the callback):
  // kUnavailable (no driver, refused, too many streams), kTimeout, by errno.
  void connect(uint32_t port, Deadline deadline, ConnectCallback callback);

  // Thread: any, device mutex not held.
  VsockMetrics metrics() const;

  void attach(std::mutex& device_mutex) override { mutex_ = &device_mutex; }
  uint32_t device_id() const override;
  uint64_t offered_features() const override { return 0; }
  std::vector<uint16_t> queue_sizes() const override { return {kQueueSize, kQueueSize, 16}; }
  void read_config(uint64_t offset, std::span<std::byte> out) const override;
  void write_config(uint64_t, std::span<const std::byte>) override {}
  void activate(const DeviceContext& context) override;
  void queue_notify(uint16_t queue) override;
  void reset() override;
  Status quiesce(Deadline) override;
  void resume() override;
  std::string save() const override;
  Status restore(std::string_view bytes) override;
  void after_fork() override;

 private:
  using Connection = vsock::Connection;
  struct Stream {
    std::unique_ptr<Connection> connection;
    UniqueFd theirs;           // until the guest has answered
    ConnectCallback callback;  // likewise
    bool queued_to_send = false;
    bool watched_for_writing = false;
  };
  struct Answer {
    ConnectCallback callback;
    Result<UniqueFd> result;
  };
  using Streams = std::map<uint32_t, Stream>;  // by host port

  // Event loop side.
  void on_loop();
  void on_socket(uint32_t host_port, uint32_t epoll_events);
  void serve_and_unlock(std::unique_lock<std::mutex> lock);
  void schedule();
  void expire(Deadline now);
  void arm_timer();
  Result<Stream*> open_stream(uint32_t port, Deadline deadline);
  uint32_t fresh_port();

  // Guest side.
  bool may_send() const { return active_ && !quiesced_ && gate_ == vsock::Gate::kOpen; }
  void take_packets();
  void take_packet(const DescriptorChain& chain);
  void send_packets();
  std::optional<vsock::Packet> next_packet(const DescriptorChain& chain);
  void announce_reset();
  Queue& queue(uint16_t index) { return context_.queues[index]; }
  void interrupt_if_wanted(Queue& q);

  // Streams.
  void settle(Streams::iterator stream, vsock::After after);
  void forget(Streams::iterator stream, Error reason);
  void forget_all(ErrorKind kind, const char* reason);
  void queue_to_send(uint32_t host_port, Stream& stream);
  void send_reset(const vsock::Packet& packet);
  vsock::Packet reset_of(const Connection& connection) const;

  std::mutex* mutex_ = nullptr;  // the transport's; guards all below
  EventLoop* loop_ = nullptr;
  DeviceContext context_;
  bool active_ = false;
  bool quiesced_ = false;
  vsock::Gate gate_ = vsock::Gate::kOpen;
  uint16_t announced_at_ = 0;
  uint32_t last_port_ = 0;

  Streams streams_;
  std::deque<uint32_t> senders_;  // host ports of streams with something for the guest, round robin
  std::deque<vsock::Packet> resets_;
  std::vector<Answer> answers_;          // callbacks due on the loop
  std::vector<UniqueFd> dying_;          // to be removed from the loop, then closed
  std::vector<uint32_t> watch_changes_;  // host ports whose interest in EPOLLOUT changed
  bool scheduled_ = false;
  bool packets_left_ = false;  // the transmit queue was left before it was empty
  uint64_t timer_ = 0;         // 0 = none
  Deadline timer_at_{};
  VsockMetrics metrics_;
  DescriptorChain chain_, rx_chain_;
  std::vector<iovec> pieces_;
};

}  // namespace ramet::vmm
