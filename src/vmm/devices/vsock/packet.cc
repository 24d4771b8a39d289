#include "vmm/devices/vsock/packet.h"

namespace ramet::vmm::vsock {

Packet decode(const WireHeader& wire) {
  Packet p;
  p.src_cid = wire.src_cid;
  p.dst_cid = wire.dst_cid;
  p.src_port = wire.src_port;
  p.dst_port = wire.dst_port;
  p.len = wire.len;
  p.type = wire.type;
  p.op = static_cast<Op>(static_cast<uint16_t>(wire.op));
  p.flags = wire.flags;
  p.buf_alloc = wire.buf_alloc;
  p.fwd_cnt = wire.fwd_cnt;
  return p;
}

WireHeader encode(const Packet& packet) {
  WireHeader wire;
  wire.src_cid = packet.src_cid;
  wire.dst_cid = packet.dst_cid;
  wire.src_port = packet.src_port;
  wire.dst_port = packet.dst_port;
  wire.len = packet.len;
  wire.type = packet.type;
  wire.op = static_cast<uint16_t>(packet.op);
  wire.flags = packet.flags;
  wire.buf_alloc = packet.buf_alloc;
  wire.fwd_cnt = packet.fwd_cnt;
  return wire;
}

Verdict check_from_guest(const Packet& packet, uint64_t guest_cid, uint64_t payload_bytes) {
  if (packet.src_cid != guest_cid || packet.dst_cid != kHostCid) return Verdict::kDrop;
  if (packet.op == Op::kRst) return packet.len == 0 ? Verdict::kGood : Verdict::kDrop;
  if (packet.type != kTypeStream) return Verdict::kReset;
  switch (packet.op) {
    case Op::kRw: return packet.len <= payload_bytes ? Verdict::kGood : Verdict::kReset;
    case Op::kRequest:
    case Op::kResponse:
    case Op::kCreditUpdate:
    case Op::kCreditRequest: return packet.len == 0 ? Verdict::kGood : Verdict::kReset;
    case Op::kShutdown: return packet.len == 0 && (packet.flags & ~kShutdownBoth) == 0 ? Verdict::kGood : Verdict::kReset;
    default: return Verdict::kReset;
  }
}

Packet reset_for(const Packet& offending) {
  Packet p;
  p.src_cid = offending.dst_cid;
  p.dst_cid = offending.src_cid;
  p.src_port = offending.dst_port;
  p.dst_port = offending.src_port;
  p.type = offending.type;  // a guest checks that the answer has the type it asked for
  p.op = Op::kRst;
  return p;
}

}  // namespace ramet::vmm::vsock
