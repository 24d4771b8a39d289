// A hostile guest against the vsock device, with a host that reads, writes, closes, pauses and forks at any moment. The input
// is a program: one byte says what happens next, the bytes behind it how.
#include <sys/socket.h>

#include <cstdlib>

#include "input.h"
#include "vmm/devices/driver_fake.h"
#include "vmm/devices/vsock/device.h"

namespace {

using namespace ramet;
using namespace ramet::vmm;

constexpr uint64_t kRam = 192 * 1024;
constexpr uint32_t kGuestPort = 1024;

struct World {
  explicit World(FuzzInput& data) : in(data), loop(std::move(*EventLoop::create())), driver(device, kRam) {
    device.use_loop(*loop);
    start();
  }

  void start() {
    driver.start(3, in.coin() ? 1ull << VIRTIO_RING_F_EVENT_IDX : 0);
    header = driver.allocate(vsock::kHeaderBytes);
    payload = driver.allocate(8192);
    receive_buffers = driver.allocate(16 * 2048);
    events = driver.allocate(64);
    for (int i = 0; i < 8; i++) post(VsockDevice::kRxQueue, {receive_buffers.value + 2048ull * i}, 2048);
    for (int i = 0; i < 4; i++) post(VsockDevice::kEventQueue, events, 4);
    driver.notify(0);
    driver.notify(2);
  }
  void post(uint16_t queue, GuestAddr at, uint32_t bytes) {
    const DriverFake::Buffer buffer{at, bytes, true};
    driver.add(queue, {&buffer, 1});
  }

  void connect() {
    device.connect(kGuestPort, deadline_after(std::chrono::milliseconds(in.upto(2))), [this](Result<UniqueFd> r) {
      if (r && ends.size() < 8) ends.push_back(std::move(*r));
    });
  }
  // A packet that mostly names a stream there may be.
  void send_packet() {
    vsock::Packet p;
    p.src_cid = !in.rarely(20) ? vsock::kGuestCid : in.number<uint64_t>();
    p.dst_cid = !in.rarely(20) ? vsock::kHostCid : in.number<uint64_t>();
    p.src_port = kGuestPort;
    p.dst_port = (1u << 20) + in.upto(5);
    p.op = static_cast<vsock::Op>(in.upto(9));
    p.type = !in.rarely(10) ? vsock::kTypeStream : in.number<uint16_t>();
    p.flags = in.upto(4);
    p.len = p.op == vsock::Op::kRw ? in.upto(9000) : in.upto(1);
    p.buf_alloc = in.coin() ? 65536 : in.number<uint32_t>();
    p.fwd_cnt = in.number<uint32_t>();
    driver.store(header, vsock::encode(p));
    std::vector<DriverFake::Buffer> buffers{{header, static_cast<uint32_t>(vsock::kHeaderBytes), false}};
    const uint32_t present = in.coin() ? p.len : in.upto(8192);
    for (uint32_t at = 0; at < std::min<uint32_t>(present, 8192);) {
      const uint32_t n = 1 + in.upto(8191 - at);
      buffers.push_back({{payload.value + at}, n, false});
      at += n;
      if (buffers.size() > 6) break;
    }
    driver.add(VsockDevice::kTxQueue, buffers);
    driver.notify(VsockDevice::kTxQueue);
  }
  void host_step() {
    if (ends.empty()) return;
    UniqueFd& end = ends[in.upto(ends.size() - 1)];
    std::string bytes(1 + in.upto(8999), 'h');
    switch (in.upto(4)) {
      case 0: (void)!::send(end.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL); break;
      case 1: (void)!::recv(end.get(), bytes.data(), bytes.size(), MSG_DONTWAIT); break;
      case 2: ::shutdown(end.get(), SHUT_WR); break;
      case 3: ::shutdown(end.get(), SHUT_RD); break;
      default:
        end.reset();
        ends.erase(ends.begin() + (&end - ends.data()));
        break;
    }
  }
  // The rings and descriptors the guest may rewrite at any time.
  void poke() {
    const QueueLayout& layout = driver.layout(in.upto(2));
    const GuestAddr where = in.coin() ? layout.descriptors : layout.available;
    driver.store(GuestAddr{where.value + 2 * in.upto(18)}, in.number<uint16_t>());
    driver.notify(in.upto(4));
  }
  void become_child() {
    if (!driver.transport().quiesce(deadline_after(std::chrono::seconds(1)))) abort();
    const std::string state = driver.transport().save();
    if (state.empty()) abort();
    driver.transport().after_fork();
    loop = std::move(*EventLoop::create());
    device.use_loop(*loop);
    driver.transport().resume();
  }
  void pause() {
    if (!driver.transport().quiesce(deadline_after(std::chrono::seconds(1)))) abort();
    if (in.coin()) connect();
    driver.transport().resume();
  }
  void take_used(uint16_t queue, GuestAddr at, uint32_t bytes) {
    while (driver.take_used(queue))
      if (at.value) post(queue, at, bytes);
    driver.kick(queue);
  }

  void step() {
    switch (in.upto(11)) {
      case 0:
      case 1:
      case 2: send_packet(); break;
      case 3: connect(); break;
      case 4:
      case 5: host_step(); break;
      case 6: take_used(VsockDevice::kRxQueue, receive_buffers, 1 + in.upto(2047)); break;
      case 7: take_used(VsockDevice::kEventQueue, events, 4); break;
      case 8: pause(); break;
      case 9: become_child(); break;
      case 10: poke(); break;
      default: start(); break;
    }
    take_used(VsockDevice::kTxQueue, {}, 0);
    loop->run_once(MonotonicClock::time_point{});
    // Bounds that hold whatever the guest does.
    const VsockMetrics m = device.metrics();
    if (m.connections > VsockDevice::kMaxConnections || m.held_bytes > m.connections * 256 * 1024) abort();
  }

  FuzzInput& in;
  std::unique_ptr<EventLoop> loop;
  VsockDevice device;
  DriverFake driver;
  std::vector<UniqueFd> ends;
  GuestAddr header, payload, receive_buffers, events;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput in(data, size);
  World world(in);
  while (!in.empty()) world.step();
  return 0;
}
