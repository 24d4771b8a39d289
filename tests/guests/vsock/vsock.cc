// An echo server behind virtio-vsock, one port, polled: what a stream brings goes back on it. Serves when told to, until a
// number of streams are over; takes the transport reset that a forked guest is told about as the end of all its streams. On
// request it floods the device with packets of streams that nobody has.
#include "virtio.h"

using namespace ramet::guests;

namespace {

enum Queue : uint32_t { kReceive = 0, kTransmit = 1, kEvents = 2 };
enum Op : uint16_t { kRequest = 1, kResponse = 2, kRst = 3, kShutdown = 4, kRw = 5, kCreditUpdate = 6, kCreditRequest = 7 };
constexpr uint32_t kShutdownBoth = 3;
constexpr uint32_t kPayloadBytes = 196, kStreams = 8, kBufAlloc = 65536;
constexpr uint64_t kHostCid = 2, kGuestCid = 3;

struct __attribute__((packed)) Header {
  uint64_t src_cid, dst_cid;
  uint32_t src_port, dst_port, len;
  uint16_t type, op;
  uint32_t flags, buf_alloc, fwd_cnt;
};
struct __attribute__((packed)) Packet {
  Header header;
  uint8_t payload[kPayloadBytes];
};

MmioDevice device(kVsockSlot);
QueueMemory receive, transmit, events;
volatile Packet inbox[kQueueSize];
volatile Packet outbox;
volatile uint32_t event_ids[kQueueSize];
uint16_t received = 0, events_taken = 0;

struct Stream {
  uint32_t host_port;  // 0: free
  uint32_t bytes;
} streams[kStreams];
uint32_t over = 0, resets = 0;

bool start() {
  if (!device.present() || !device.negotiate()) return false;
  device.set_queue(kReceive, receive);
  device.set_queue(kTransmit, transmit);
  device.set_queue(kEvents, events);
  device.start();
  for (uint16_t i = 0; i < kQueueSize; i++) {
    MmioDevice::set(receive, i, reinterpret_cast<uint64_t>(&inbox[i]), sizeof(Packet), kDeviceWrites);
    device.offer(kReceive, receive, i);
    MmioDevice::set(events, i, reinterpret_cast<uint64_t>(&event_ids[i]), 4, kDeviceWrites);
    device.offer(kEvents, events, i);
  }
  return (device.read(kStatus) & kNeedsReset) == 0;
}

bool send(uint16_t op, uint32_t host_port, uint32_t guest_port, uint32_t len, uint32_t flags, uint32_t fwd_cnt) {
  constexpr uint32_t kLooks = 10'000'000;
  volatile Header& h = outbox.header;
  h.src_cid = kGuestCid;
  h.dst_cid = kHostCid;
  h.src_port = guest_port;
  h.dst_port = host_port;
  h.len = len;
  h.type = 1;
  h.op = op;
  h.flags = flags;
  h.buf_alloc = kBufAlloc;
  h.fwd_cnt = fwd_cnt;
  MmioDevice::set(transmit, 0, reinterpret_cast<uint64_t>(&outbox), static_cast<uint32_t>(sizeof(Header) + len), 0);
  device.offer(kTransmit, transmit, 0);
  return MmioDevice::wait_used(transmit, kLooks);
}

Stream* find(uint32_t host_port) {
  for (Stream& s : streams)
    if (s.host_port == host_port) return &s;
  return nullptr;
}

void end(Stream& s) {
  s.host_port = 0;
  over++;
}

void handle(volatile Packet& p) {
  const uint32_t host_port = p.header.src_port, guest_port = p.header.dst_port, len = p.header.len;
  Stream* s = host_port == 0 ? nullptr : find(host_port);
  if (p.header.op == kRequest && s == nullptr) {
    s = find(0);
    if (s == nullptr) {
      send(kRst, host_port, guest_port, 0, 0, 0);
      return;
    }
    *s = {host_port, 0};
    send(kResponse, host_port, guest_port, 0, 0, 0);
    return;
  }
  if (s == nullptr) {
    if (p.header.op != kRst) send(kRst, host_port, guest_port, 0, 0, 0);
    return;
  }
  switch (p.header.op) {
    case kRw:
      for (uint32_t i = 0; i < len && i < kPayloadBytes; i++) outbox.payload[i] = p.payload[i];
      s->bytes += len;
      send(kRw, host_port, guest_port, len, 0, s->bytes);
      break;
    case kShutdown:
      send(kRst, host_port, guest_port, 0, 0, s->bytes);
      end(*s);
      break;
    case kRst: end(*s); break;
    default: break;
  }
}

void poll() {
  while (received != receive.used.index) {
    const uint16_t i = static_cast<uint16_t>(receive.used.ring[received % kQueueSize].id);
    received = static_cast<uint16_t>(received + 1);
    handle(inbox[i]);
    device.offer(kReceive, receive, i);
  }
  while (events_taken != events.used.index) {
    const uint16_t i = static_cast<uint16_t>(events.used.ring[events_taken % kQueueSize].id);
    events_taken = static_cast<uint16_t>(events_taken + 1);
    resets++;
    for (Stream& s : streams)
      if (s.host_port != 0) end(s);
    device.offer(kEvents, events, i);
  }
}

}  // namespace

extern "C" void guest_main(const uint8_t*) {
  report(start() ? kReady : kFail, kVsock);
  for (;;) {
    const uint32_t command = next_command(resets);
    switch (kind_of(command)) {
      case kPing: report(kAnswer, value_of(command)); break;
      case kGo: {  // serve until `value` streams are over
        const uint32_t end_at = over + value_of(command);
        while (static_cast<int32_t>(over - end_at) < 0) poll();
        report(kAnswer, value_of(command));
        break;
      }
      case kCount:  // transport resets taken
        poll();
        report(kAnswer, resets);
        break;
      case kWrite: {  // flood
        uint32_t sent = 0;
        while (sent < value_of(command) && send(sent % 2 ? kRw : kRequest, 5000 + sent, 6000, sent % 2 ? 8 : 0, 0, 0)) sent++;
        report(kAnswer, sent);
        break;
      }
      default: report(kFail, kUnknownCommand);
    }
  }
}
