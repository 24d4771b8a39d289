// vmm/snapshot/vmstate.h - everything of a machine but its RAM and disks, as a value and as bytes.
// The bytes: a fixed header that is readable without the rest (magic, version, size, machine, CPU model, checksums), then one
// kind-tagged, versioned protobuf payload per component; docs/formats/vmstate.md. Pure: no I/O, nothing allocated before limits
// were checked. Not here: taking the state or putting it back (machine.h). Thread: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "image/memory_layout.h"
#include "kvm/state.h"
#include "vmm/devices/ioapic/device.h"
#include "vmm/devices/serial/device.h"

namespace ramet::vmm {

inline constexpr uint32_t kVmStateVersion = 1;
inline constexpr size_t kVmStateHeaderBytes = 256;
inline constexpr size_t kMaxVmStateBytes = 64u << 20;
inline constexpr uint64_t kMaxMemoryBytes = 1ull << 40;
inline constexpr size_t kMaxCpuModelBytes = 95;
inline constexpr size_t kMaxVirtioSlots = 16;

struct VmStateHeader {
  uint32_t version = kVmStateVersion;
  uint32_t vcpus = 0;
  uint64_t memory_bytes = 0;
  std::string cpu_model;  // cut to kMaxCpuModelBytes
  uint64_t body_bytes = 0;
};

struct VmState {
  std::string cpu_model;
  uint64_t memory_bytes = 0;
  image::ZeroMap zeros{0};
  uint32_t generation = 0;  // forks since boot
  kvm::ClockState clock;
  std::vector<kvm::VcpuState> vcpus;
  IoapicState ioapic;
  SerialState serial;
  std::vector<std::string> virtio;  // MmioTransport::save() by slot
};

std::string encode_vmstate(const VmState& state);
// Header only, for listings and compatibility checks.   Errors: kCorrupt, kUnsupported (a newer version, with both numbers).
Result<VmStateHeader> decode_vmstate_header(std::string_view bytes);
// Errors: kCorrupt (checksum, lengths, a missing or doubled component, counts out of range), kUnsupported.
Result<VmState> decode_vmstate(std::string_view bytes);
// The second half of it: a body whose checksum was verified (or, for the fuzzer, was not).
Result<VmState> decode_vmstate_body(const VmStateHeader& header, std::string_view body);

}  // namespace ramet::vmm
