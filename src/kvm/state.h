// kvm/state.h - everything a vCPU and a VM's clock consist of, as plain values that outlive the KVM objects.
// Byte strings hold the kernel's stable ABI structs of that name. Not here: file formats (vmm/snapshot). Thread: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ramet::kvm {

struct Msr {
  uint32_t index = 0;
  uint64_t value = 0;
};

struct VcpuState {
  std::string mp_state, regs, sregs, xsave, xcrs, debugregs, lapic, events;
  std::vector<Msr> msrs;  // without TSC and TSC_DEADLINE
  uint64_t tsc = 0;
  uint64_t tsc_deadline = 0;
  std::optional<uint64_t> tsc_offset;  // absent where the host cannot tell
};

// The VM's clock at one moment, with the host's clocks read next to it.
struct ClockState {
  uint64_t kvmclock_ns = 0;
  uint64_t host_tsc = 0;
  int64_t monotonic_raw_ns = 0;
};

// The host's clocks at one moment.
struct Moment {
  uint64_t host_tsc = 0;
  int64_t monotonic_raw_ns = 0;
};

// How time continues in a restored machine. TSC and kvm-clock both run on, or both stand still; never one of them, or the
// guest's watchdog calls its TSC unstable.
enum class TimeMode {
  kRunsOn,      // live fork on the same host: TSC offset kept, kvm-clock advanced by the real time that passed
  kStandsStill  // image: both continue from the saved values
};

}  // namespace ramet::kvm
