// kvm/cpuid.h - the CPU that guests see: what KVM supports, cut down to a stable baseline, plus per-vCPU topology.
// The baseline is an allow list, so that a machine captured on one host also runs on another of the same vendor.
// Thread: pure functions.
#pragma once

#include <vector>

#include "kvm/kvm.h"

namespace ramet::kvm {

std::vector<CpuidEntry> baseline_cpuid(const std::vector<CpuidEntry>& supported);
// Adds APIC id and topology of one vCPU.
std::vector<CpuidEntry> vcpu_cpuid(const std::vector<CpuidEntry>& baseline, unsigned id, unsigned vcpu_count);

}  // namespace ramet::kvm
