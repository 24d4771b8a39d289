#include "vmm/snapshot/vmstate.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "vmm/snapshot/vmstate.pb.h"

namespace ramet::vmm {
namespace {

constexpr char kMagic[8] = {'R', 'M', 'T', 'V', 'M', 'S', 'T', 'A'};
constexpr uint32_t kComponentVersion = 1;

struct RawHeader {
  char magic[8];
  le32 version;
  le32 header_bytes;
  le64 body_bytes;
  le64 memory_bytes;
  le32 vcpus;
  le32 body_crc;  // CRC-32C of the body
  char cpu_model[kMaxCpuModelBytes + 1];
  char reserved[116];
  le32 header_crc;  // CRC-32C of all before
};
static_assert(sizeof(RawHeader) == kVmStateHeaderBytes);

template <class Payload>
void add_component(VmStateBody& body, const char* kind, uint32_t index, const Payload& payload) {
  VmStateComponent& c = *body.add_components();
  c.set_kind(kind);
  c.set_index(index);
  c.set_version(kComponentVersion);
  c.set_payload(payload.SerializeAsString());
}

VcpuPayload to_payload(const kvm::VcpuState& s) {
  VcpuPayload p;
  p.set_mp_state(s.mp_state);
  p.set_regs(s.regs);
  p.set_sregs(s.sregs);
  p.set_xsave(s.xsave);
  p.set_xcrs(s.xcrs);
  p.set_debugregs(s.debugregs);
  p.set_lapic(s.lapic);
  p.set_events(s.events);
  for (const kvm::Msr& m : s.msrs) {
    MsrPayload& out = *p.add_msrs();
    out.set_index(m.index);
    out.set_value(m.value);
  }
  p.set_tsc(s.tsc);
  p.set_tsc_deadline(s.tsc_deadline);
  if (s.tsc_offset) p.set_tsc_offset(*s.tsc_offset);
  return p;
}

kvm::VcpuState from_payload(const VcpuPayload& p) {
  kvm::VcpuState s;
  s.mp_state = p.mp_state();
  s.regs = p.regs();
  s.sregs = p.sregs();
  s.xsave = p.xsave();
  s.xcrs = p.xcrs();
  s.debugregs = p.debugregs();
  s.lapic = p.lapic();
  s.events = p.events();
  for (const MsrPayload& m : p.msrs()) s.msrs.push_back({m.index(), m.value()});
  s.tsc = p.tsc();
  s.tsc_deadline = p.tsc_deadline();
  if (p.has_tsc_offset()) s.tsc_offset = p.tsc_offset();
  return s;
}

IoapicPayload to_payload(const IoapicState& s) {
  IoapicPayload p;
  p.set_id(s.id);
  p.set_select(s.select);
  p.set_latched(s.latched);
  for (const uint64_t r : s.redirection) p.add_redirection(r);
  return p;
}

Result<IoapicState> from_payload(const IoapicPayload& p) {
  IoapicState s;
  if (static_cast<size_t>(p.redirection_size()) != s.redirection.size())
    return fail(ErrorKind::kCorrupt, "vmstate: the IOAPIC has " + std::to_string(p.redirection_size()) + " pins, expected " +
                                         std::to_string(s.redirection.size()));
  s.id = p.id();
  s.select = p.select();
  s.latched = p.latched();
  std::copy(p.redirection().begin(), p.redirection().end(), s.redirection.begin());
  return s;
}

SerialPayload to_payload(const SerialState& s) {
  SerialPayload p;
  p.set_interrupt_enable(s.interrupt_enable);
  p.set_line_control(s.line_control);
  p.set_modem_control(s.modem_control);
  p.set_scratch(s.scratch);
  p.set_divisor_low(s.divisor_low);
  p.set_divisor_high(s.divisor_high);
  p.set_fifo_control(s.fifo_control);
  p.set_transmit_empty_pending(s.transmit_empty_pending);
  p.set_line(s.line);
  p.set_received(s.received);
  return p;
}

Result<SerialState> from_payload(const SerialPayload& p) {
  const uint32_t registers[] = {p.interrupt_enable(), p.line_control(), p.modem_control(), p.scratch(),
                                p.divisor_low(),      p.divisor_high(), p.fifo_control()};
  if (std::any_of(std::begin(registers), std::end(registers), [](uint32_t r) { return r > 0xff; }))
    return fail(ErrorKind::kCorrupt, "vmstate: a serial register is larger than 255");
  if (p.received().size() > Serial::kFifoBytes)
    return fail(ErrorKind::kCorrupt, "vmstate: the serial buffer has " + std::to_string(p.received().size()) +
                                         " bytes, the limit is " + std::to_string(Serial::kFifoBytes));
  SerialState s;
  s.interrupt_enable = static_cast<uint8_t>(registers[0]);
  s.line_control = static_cast<uint8_t>(registers[1]);
  s.modem_control = static_cast<uint8_t>(registers[2]);
  s.scratch = static_cast<uint8_t>(registers[3]);
  s.divisor_low = static_cast<uint8_t>(registers[4]);
  s.divisor_high = static_cast<uint8_t>(registers[5]);
  s.fifo_control = static_cast<uint8_t>(registers[6]);
  s.transmit_empty_pending = p.transmit_empty_pending();
  s.line = p.line();
  s.received = p.received();
  return s;
}

template <class Payload>
Result<Payload> parse(const VmStateComponent& c) {
  if (c.version() != kComponentVersion)
    return fail(ErrorKind::kUnsupported, "vmstate: component " + c.kind() + " has version " + std::to_string(c.version()) +
                                             ", this monitor reads " + std::to_string(kComponentVersion));
  Payload p;
  if (!p.ParseFromString(c.payload())) return fail(ErrorKind::kCorrupt, "vmstate: component " + c.kind() + " does not parse");
  return p;
}

tl::unexpected<Error> bad_component(const VmStateComponent& c, const char* what) {
  return fail(ErrorKind::kCorrupt,
              "vmstate: component '" + c.kind().substr(0, 32) + "' number " + std::to_string(c.index()) + " " + what);
}

// Collects components, each exactly once and, for numbered ones, in order.
class Collector {
 public:
  explicit Collector(const VmStateHeader& header) {
    state_.memory_bytes = header.memory_bytes, state_.cpu_model = header.cpu_model;
  }

  Status take(const VmStateComponent& c) {
    if (c.kind() == "machine") return take_machine(c);
    if (c.kind() == "vcpu") return take_vcpu(c);
    if (c.kind() == "ioapic") return take_ioapic(c);
    if (c.kind() == "serial") return take_serial(c);
    if (c.kind() == "virtio") return take_virtio(c);
    return bad_component(c, "is unknown");
  }
  Result<VmState> finish(uint32_t vcpus) && {
    if (!machine_ || !ioapic_ || !serial_) return fail(ErrorKind::kCorrupt, "vmstate: machine, ioapic or serial is missing");
    if (state_.vcpus.size() != vcpus)
      return fail(ErrorKind::kCorrupt, "vmstate: " + std::to_string(state_.vcpus.size()) + " vCPUs in the body, " +
                                           std::to_string(vcpus) + " in the header");
    return std::move(state_);
  }

 private:
  Status take_machine(const VmStateComponent& c) {
    if (std::exchange(machine_, true)) return bad_component(c, "is there twice");
    TRY_ASSIGN(const MachinePayload p, parse<MachinePayload>(c));
    TRY_ASSIGN(state_.zeros, image::ZeroMap::decode(state_.memory_bytes, p.zero_map()));
    state_.generation = p.generation();
    state_.clock = {p.kvmclock_ns(), p.host_tsc(), p.monotonic_raw_ns()};
    return {};
  }
  Status take_vcpu(const VmStateComponent& c) {
    if (c.index() != state_.vcpus.size() || c.index() >= layout::kMaxVcpus) return bad_component(c, "is out of order");
    TRY_ASSIGN(const VcpuPayload p, parse<VcpuPayload>(c));
    state_.vcpus.push_back(from_payload(p));
    return {};
  }
  Status take_ioapic(const VmStateComponent& c) {
    if (std::exchange(ioapic_, true)) return bad_component(c, "is there twice");
    TRY_ASSIGN(const IoapicPayload p, parse<IoapicPayload>(c));
    TRY_ASSIGN(state_.ioapic, from_payload(p));
    return {};
  }
  Status take_serial(const VmStateComponent& c) {
    if (std::exchange(serial_, true)) return bad_component(c, "is there twice");
    TRY_ASSIGN(const SerialPayload p, parse<SerialPayload>(c));
    TRY_ASSIGN(state_.serial, from_payload(p));
    return {};
  }
  Status take_virtio(const VmStateComponent& c) {
    if (c.index() != state_.virtio.size() || c.index() >= kMaxVirtioSlots) return bad_component(c, "is out of order");
    if (c.version() != kComponentVersion) return bad_component(c, "has an unknown version");
    state_.virtio.push_back(c.payload());
    return {};
  }

  VmState state_;
  bool machine_ = false, ioapic_ = false, serial_ = false;
};

std::string encode_body(const VmState& s) {
  VmStateBody body;
  MachinePayload machine;
  machine.set_zero_map(s.zeros.encode());
  machine.set_generation(s.generation);
  machine.set_kvmclock_ns(s.clock.kvmclock_ns);
  machine.set_host_tsc(s.clock.host_tsc);
  machine.set_monotonic_raw_ns(s.clock.monotonic_raw_ns);
  add_component(body, "machine", 0, machine);
  for (uint32_t i = 0; i < s.vcpus.size(); i++) add_component(body, "vcpu", i, to_payload(s.vcpus[i]));
  add_component(body, "ioapic", 0, to_payload(s.ioapic));
  add_component(body, "serial", 0, to_payload(s.serial));
  for (uint32_t i = 0; i < s.virtio.size(); i++) {
    VmStateComponent& c = *body.add_components();
    c.set_kind("virtio");
    c.set_index(i);
    c.set_version(kComponentVersion);
    c.set_payload(s.virtio[i]);
  }
  return body.SerializeAsString();
}

}  // namespace

std::string encode_vmstate(const VmState& state) {
  const std::string body = encode_body(state);
  RawHeader raw{};
  std::memcpy(raw.magic, kMagic, sizeof kMagic);
  raw.version = kVmStateVersion;
  raw.header_bytes = static_cast<uint32_t>(sizeof raw);
  raw.body_bytes = body.size();
  raw.memory_bytes = state.memory_bytes;
  raw.vcpus = static_cast<uint32_t>(state.vcpus.size());
  raw.body_crc = crc32c(body.data(), body.size());
  std::memcpy(raw.cpu_model, state.cpu_model.data(), std::min(state.cpu_model.size(), kMaxCpuModelBytes));
  raw.header_crc = crc32c(&raw, offsetof(RawHeader, header_crc));
  std::string out(reinterpret_cast<const char*>(&raw), sizeof raw);
  return out + body;
}

Result<VmStateHeader> decode_vmstate_header(std::string_view bytes) {
  RawHeader raw;
  if (bytes.size() < sizeof raw)
    return fail(ErrorKind::kCorrupt,
                "vmstate has " + std::to_string(bytes.size()) + " bytes, its header alone needs " + std::to_string(sizeof raw));
  std::memcpy(&raw, bytes.data(), sizeof raw);
  if (std::memcmp(raw.magic, kMagic, sizeof kMagic) != 0)
    return fail(ErrorKind::kCorrupt, "not a vmstate file (magic missing)");
  if (raw.version != kVmStateVersion)
    return fail(ErrorKind::kUnsupported, "vmstate has version " + std::to_string(raw.version) + ", this monitor reads " +
                                             std::to_string(kVmStateVersion));
  if (raw.header_crc != crc32c(&raw, offsetof(RawHeader, header_crc)) || raw.header_bytes != sizeof raw)
    return fail(ErrorKind::kCorrupt, "vmstate header does not match its checksum");
  if (raw.body_bytes > kMaxVmStateBytes)
    return fail(ErrorKind::kCorrupt, "vmstate body has " + std::to_string(raw.body_bytes) + " bytes, the limit is " +
                                         std::to_string(kMaxVmStateBytes));
  if (raw.vcpus < 1 || raw.vcpus > layout::kMaxVcpus)
    return fail(ErrorKind::kCorrupt,
                "vmstate names " + std::to_string(raw.vcpus) + " vCPUs, the limit is " + std::to_string(layout::kMaxVcpus));
  if (raw.memory_bytes == 0 || raw.memory_bytes > kMaxMemoryBytes || !is_aligned(raw.memory_bytes, image::kRamBlockBytes))
    return fail(ErrorKind::kCorrupt, "vmstate names " + std::to_string(raw.memory_bytes) +
                                         " bytes of RAM, expected a multiple of " + std::to_string(image::kRamBlockBytes) +
                                         " up to " + std::to_string(kMaxMemoryBytes));
  VmStateHeader h;
  h.vcpus = raw.vcpus;
  h.memory_bytes = raw.memory_bytes;
  h.body_bytes = raw.body_bytes;
  h.cpu_model.assign(raw.cpu_model, strnlen(raw.cpu_model, kMaxCpuModelBytes));
  return h;
}

Result<VmState> decode_vmstate(std::string_view bytes) {
  TRY_ASSIGN(const VmStateHeader header, decode_vmstate_header(bytes));
  const std::string_view body_bytes = bytes.substr(kVmStateHeaderBytes);
  RawHeader raw;
  std::memcpy(&raw, bytes.data(), sizeof raw);
  if (body_bytes.size() != header.body_bytes)
    return fail(ErrorKind::kCorrupt, "vmstate body has " + std::to_string(body_bytes.size()) + " bytes, its header says " +
                                         std::to_string(header.body_bytes));
  if (raw.body_crc != crc32c(body_bytes.data(), body_bytes.size()))
    return fail(ErrorKind::kCorrupt, "vmstate body does not match its checksum");
  return decode_vmstate_body(header, body_bytes);
}

Result<VmState> decode_vmstate_body(const VmStateHeader& header, std::string_view body_bytes) {
  VmStateBody body;
  if (!body.ParseFromArray(body_bytes.data(), static_cast<int>(body_bytes.size())))
    return fail(ErrorKind::kCorrupt, "vmstate body does not parse");
  Collector collector(header);
  for (const VmStateComponent& c : body.components()) TRY(collector.take(c));
  return std::move(collector).finish(header.vcpus);
}

}  // namespace ramet::vmm
