#include "kvm/cpuid.h"

#include <bit>

#include "kvm/abi.h"

namespace ramet::kvm {
namespace {

constexpr uint32_t bit(unsigned n) { return 1u << n; }

// Leaf 1. Left out of ECX: MONITOR(3), VMX(5), SMX(6), EIST(7), TM2(8), xTPR(14), PDCM(15), DCA(18), OSXSAVE(27, KVM's own).
constexpr uint32_t kLeaf1Ecx = bit(0) | bit(1) | bit(9) | bit(12) | bit(13) | bit(17) | bit(19) | bit(20) | bit(21) | bit(22) |
                               bit(23) | bit(25) | bit(26) | bit(28) | bit(29) | bit(30);
constexpr uint32_t kTscDeadline = bit(24);  // KVM emulates it but never reports it
constexpr uint32_t kHypervisor = bit(31);
constexpr uint32_t kHyperThreading = bit(28);
// Left out of EDX: PSN(18), DS(21), ACPI(22), HTT(28, set per machine), TM(29), PBE(31).
constexpr uint32_t kLeaf1Edx = 0x0789fbffu | bit(19);

// Leaf 7.0: FSGSBASE BMI1 AVX2 SMEP BMI2 ERMS INVPCID RDSEED ADX SMAP CLFLUSHOPT CLWB SHA. No AVX-512, MPX, SGX, PT, RDT, TSX.
constexpr uint32_t kLeaf7Ebx =
    bit(0) | bit(3) | bit(5) | bit(7) | bit(8) | bit(9) | bit(10) | bit(18) | bit(19) | bit(20) | bit(23) | bit(24) | bit(29);
// UMIP GFNI VAES VPCLMULQDQ RDPID. No PKU: its register would have to be switched with every task.
constexpr uint32_t kLeaf7Ecx = bit(2) | bit(8) | bit(9) | bit(10) | bit(22);
// FSRM MD_CLEAR IBRS STIBP L1D_FLUSH ARCH_CAPABILITIES SSBD. No AMX.
constexpr uint32_t kLeaf7Edx = bit(4) | bit(10) | bit(26) | bit(27) | bit(28) | bit(29) | bit(31);

constexpr uint32_t kXcr0 = 7;           // x87, SSE, AVX
constexpr uint32_t kXsaveFeatures = 7;  // XSAVEOPT, XSAVEC, XGETBV1; no XSAVES
constexpr uint32_t kXsaveAvxBytes = 832;

constexpr uint32_t kKvmAsyncPageFaults = bit(4) | bit(10) | bit(14);
constexpr uint32_t kSvm = bit(2);
constexpr uint32_t kInvariantTsc = bit(8);  // off, so that kvm-clock wins over the raw TSC

// False: the leaf is dropped.
bool keep(CpuidEntry& e) {
  switch (e.function) {
    case 0x1:
      e.ecx &= kLeaf1Ecx;
      e.edx &= kLeaf1Edx;
      return true;
    case 0x7:
      if (e.index != 0) return false;
      e.eax = 0;
      e.ebx &= kLeaf7Ebx;
      e.ecx &= kLeaf7Ecx;
      e.edx &= kLeaf7Edx;
      return true;
    case 0xd:
      if (e.index == 0) {
        e.eax &= kXcr0;
        e.edx = 0;
        e.ebx = e.ecx = (e.eax & 4) ? kXsaveAvxBytes : 576;
        return true;
      }
      if (e.index == 1) {
        e.eax &= kXsaveFeatures;
        e.ebx = e.ecx = e.edx = 0;
        return true;
      }
      return e.index == 2;
    case 0x5:  // MONITOR
    case 0x6:  // thermal, power
    case 0xa:  // PMU
      e.eax = e.ebx = e.ecx = e.edx = 0;
      return true;
    case 0xb:
    case 0x1f:  // topology: rebuilt per vCPU
    case 0xf:
    case 0x10:
    case 0x12:
    case 0x14:  // RDT, SGX, PT
    case 0x18:
    case 0x19:
    case 0x1d:
    case 0x1e:
    case 0x20:
    case 0x23:
    case 0x24: return false;
    case 0x40000001: e.eax &= ~kKvmAsyncPageFaults; return true;
    case 0x80000001:
      e.ecx &= ~(kSvm | bit(10) | bit(15) | bit(16) | bit(23) | bit(24) | bit(28) | bit(29));  // IBS, LWP, FMA4, perf, MONITORX
      return true;
    case 0x80000007: e.edx &= ~kInvariantTsc; return true;
    case 0x8000000a:
    case 0x8000001b:
    case 0x8000001c:
    case 0x8000001f:
    case 0x80000020:
    case 0x80000022:
    case 0x80000023: return false;  // SVM, IBS, LWP, SEV, QoS, PMU, SME keys
    default: return true;
  }
}

unsigned apic_id_bits(unsigned vcpu_count) { return std::bit_width(vcpu_count - 1); }

}  // namespace

std::vector<CpuidEntry> baseline_cpuid(const std::vector<CpuidEntry>& supported) {
  std::vector<CpuidEntry> out;
  for (CpuidEntry e : supported)
    if (keep(e)) out.push_back(e);
  return out;
}

std::vector<CpuidEntry> vcpu_cpuid(const std::vector<CpuidEntry>& baseline, unsigned id, unsigned vcpu_count) {
  std::vector<CpuidEntry> out = baseline;
  const unsigned bits = apic_id_bits(vcpu_count);
  for (CpuidEntry& e : out) {
    switch (e.function) {
      case 0x1:
        e.ebx = (e.ebx & 0x0000ffffu) | vcpu_count << 16 | id << 24;
        e.ecx |= kTscDeadline | kHypervisor;
        if (vcpu_count > 1) e.edx |= kHyperThreading;
        break;
      case 0x80000008: e.ecx = (vcpu_count - 1) | bits << 12; break;
      case 0x8000001e:
        e.eax = id;
        e.ebx = id;
        e.ecx = 0;
        break;
      default: break;
    }
  }
  // Leaf 0xB: one thread per core, all cores in one package.
  CpuidEntry threads{.function = 0xb, .index = 0, .flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX};
  threads.ebx = 1;
  threads.ecx = 0x100;
  threads.edx = id;
  CpuidEntry cores{.function = 0xb, .index = 1, .flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX};
  cores.eax = bits;
  cores.ebx = vcpu_count;
  cores.ecx = 0x201;
  cores.edx = id;
  out.push_back(threads);
  out.push_back(cores);
  return out;
}

}  // namespace ramet::kvm
