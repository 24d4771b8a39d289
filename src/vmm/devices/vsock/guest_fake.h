// vmm/devices/vsock/guest_fake.h - a vsock driver for unit tests: keeps receive and event buffers posted, sends and receives
// packets. Not here: sockets of a guest; a test plays them. Thread: one, beside the device's own.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "vmm/devices/driver_fake.h"
#include "vmm/devices/vsock/device.h"

namespace ramet::vmm {

struct Delivery {
  vsock::Packet packet;
  std::string payload;
};

class VsockGuestFake {
 public:
  static constexpr uint32_t kBufferBytes = 4096;
  static constexpr int kEventBuffers = 8;

  explicit VsockGuestFake(VsockDevice& device) : driver(device) {}

  void start(int receive_buffers = DriverFake::kRingSize) {
    driver.start(3);
    for (int i = 0; i < receive_buffers; i++) post(VsockDevice::kRxQueue, driver.allocate(kBufferBytes), kBufferBytes);
    for (int i = 0; i < kEventBuffers; i++) post(VsockDevice::kEventQueue, driver.allocate(4), 4);
    driver.kick(VsockDevice::kRxQueue);
    driver.kick(VsockDevice::kEventQueue);
    tx_header_ = driver.allocate(vsock::kHeaderBytes);
    tx_payload_ = driver.allocate(64 * 1024);
  }
  void post(uint16_t queue, GuestAddr at, uint32_t bytes) {
    const DriverFake::Buffer buffer{at, bytes, true};
    const std::optional<uint16_t> head = driver.add(queue, {&buffer, 1});
    if (head) where_[queue][*head] = at;
  }

  // The next packet in the receive queue; its buffer is posted again unless `keep`.
  std::optional<Delivery> receive(bool keep = false) {
    const std::optional<DriverFake::Used> used = driver.take_used(VsockDevice::kRxQueue);
    if (!used) return std::nullopt;
    const GuestAddr at = where_[VsockDevice::kRxQueue][used->head];
    Delivery d{vsock::decode(driver.load<vsock::WireHeader>(at)), {}};
    d.payload = driver.bytes_at({at.value + vsock::kHeaderBytes}, used->written - vsock::kHeaderBytes);
    if (!keep) {
      post(VsockDevice::kRxQueue, at, kBufferBytes);
      driver.kick(VsockDevice::kRxQueue);
    }
    return d;
  }

  // Sends raw header and payload; the chain says `payload` is there whatever the header claims.
  void send(const vsock::Packet& packet, std::string_view payload = {}) {
    driver.store(tx_header_, vsock::encode(packet));
    driver.put_bytes(tx_payload_, payload);
    std::vector<DriverFake::Buffer> buffers{{tx_header_, static_cast<uint32_t>(vsock::kHeaderBytes), false}};
    if (!payload.empty()) buffers.push_back({tx_payload_, static_cast<uint32_t>(payload.size()), false});
    if (!driver.add(VsockDevice::kTxQueue, buffers)) abort();
    driver.kick(VsockDevice::kTxQueue);
    while (driver.take_used(VsockDevice::kTxQueue)) {
    }
  }

  // Takes an event, as a driver does: handle it, then give the buffer back and kick.
  std::optional<uint32_t> take_event() {
    const std::optional<DriverFake::Used> used = driver.take_used(VsockDevice::kEventQueue);
    if (!used) return std::nullopt;
    const GuestAddr at = where_[VsockDevice::kEventQueue][used->head];
    const uint32_t id = driver.load<le32>(at);
    post(VsockDevice::kEventQueue, at, 4);
    driver.kick(VsockDevice::kEventQueue);
    return id;
  }

  DriverFake driver;

 private:
  GuestAddr tx_header_, tx_payload_;
  std::map<uint16_t, std::map<uint16_t, GuestAddr>> where_;
};

// The guest's end of one stream, as far as a test needs it.
struct GuestStream {
  uint32_t host_port = 0;
  uint32_t guest_port = 0;
  uint32_t buf_alloc = 256 * 1024;
  uint32_t received = 0;

  vsock::Packet packet(vsock::Op op, uint32_t len = 0, uint32_t flags = 0) const {
    vsock::Packet p;
    p.src_cid = vsock::kGuestCid;
    p.dst_cid = vsock::kHostCid;
    p.src_port = guest_port;
    p.dst_port = host_port;
    p.op = op;
    p.len = len;
    p.flags = flags;
    p.buf_alloc = buf_alloc;
    p.fwd_cnt = received;
    return p;
  }
};

}  // namespace ramet::vmm
