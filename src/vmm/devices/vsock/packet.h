// vmm/devices/vsock/packet.h - the packet header of virtio-vsock as bytes and as a value, and the checks that need no
// connection. Not here: what a packet does to a stream (connection.h). Thread: pure functions. Source: virtio 1.2,
// section 5.10.6.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/endian.h"

namespace ramet::vmm::vsock {

inline constexpr uint64_t kHostCid = 2;  // VMADDR_CID_HOST
inline constexpr uint64_t kGuestCid = 3;

inline constexpr uint16_t kTypeStream = 1;  // VIRTIO_VSOCK_TYPE_STREAM

enum class Op : uint16_t {  // VIRTIO_VSOCK_OP_*
  kInvalid = 0,
  kRequest = 1,
  kResponse = 2,
  kRst = 3,
  kShutdown = 4,
  kRw = 5,
  kCreditUpdate = 6,
  kCreditRequest = 7,
};

inline constexpr uint32_t kShutdownReceive = 1;  // VIRTIO_VSOCK_SHUTDOWN_RCV: the sender of the packet takes no more data
inline constexpr uint32_t kShutdownSend = 2;     // VIRTIO_VSOCK_SHUTDOWN_SEND: the sender of the packet sends no more data
inline constexpr uint32_t kShutdownBoth = kShutdownReceive | kShutdownSend;

inline constexpr uint32_t kEventTransportReset = 0;  // VIRTIO_VSOCK_EVENT_TRANSPORT_RESET

// struct virtio_vsock_hdr, as it lies in guest memory.
struct WireHeader {
  le64 src_cid, dst_cid;
  le32 src_port, dst_port;
  le32 len;
  le16 type, op;
  le32 flags, buf_alloc, fwd_cnt;
};
inline constexpr size_t kHeaderBytes = 44;
static_assert(sizeof(WireHeader) == kHeaderBytes);

struct Packet {
  uint64_t src_cid = 0, dst_cid = 0;
  uint32_t src_port = 0, dst_port = 0;
  uint32_t len = 0;  // payload bytes
  uint16_t type = kTypeStream;
  Op op = Op::kInvalid;  // may hold an unknown number when it comes from a guest
  uint32_t flags = 0;
  uint32_t buf_alloc = 0, fwd_cnt = 0;

  friend bool operator==(const Packet&, const Packet&) = default;
};

Packet decode(const WireHeader& wire);
WireHeader encode(const Packet& packet);

enum class Verdict {
  kGood,
  kDrop,   // not from this guest, or an RST that nobody can answer: answering could loop
  kReset,  // from this guest, but not something a stream may carry: the named stream is reset
};
// payload_bytes = readable bytes of the descriptor chain behind the header.
Verdict check_from_guest(const Packet& packet, uint64_t guest_cid, uint64_t payload_bytes);

// The answer to a packet that belongs to no stream.
Packet reset_for(const Packet& offending);

}  // namespace ramet::vmm::vsock
