// bench/floor/bare_vm.h - the least KVM machine that can be forked: slots, split interrupt controller, one vCPU, port 0x5f0.
// Not here: devices, threads, a control protocol. One thread; a BareVm owns its descriptors and its kvm_run mapping.
//
// Calls and their order are those that any monitor of this kind must make: slots before the interrupt controller, MSRs after
// the LAPIC with TSC_DEADLINE last. What ramet-vmm needs beyond this is the price of its devices and threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvm_abi.h"
#include "ram.h"

namespace ramet::bench {

// All that the kernel keeps of a machine with one vCPU.
struct VmState {
  kvm_mp_state mp;
  kvm_regs regs;
  kvm_sregs sregs;
  std::vector<uint8_t> xsave;
  kvm_xcrs xcrs;
  kvm_debugregs debugregs;
  kvm_lapic_state lapic;
  std::vector<uint8_t> msrs;
  kvm_vcpu_events events;
  uint64_t tsc_offset;
  bool has_tsc_offset;
  kvm_clock_data clock;
};

// Opened once and inherited by forked children: /dev/kvm, the CPUID and MSR lists.
struct KvmSystem {
  KvmSystem();
  int fd;
  int run_bytes;
  std::vector<uint8_t> cpuid;      // kvm_cpuid2
  std::vector<uint32_t> msr_list;  // without the TSC, with TSC_DEADLINE last
};

class BareVm {
 public:
  BareVm(const KvmSystem& system, Ram& ram);
  ~BareVm();
  BareVm(const BareVm&) = delete;
  BareVm& operator=(const BareVm&) = delete;

  // Loads an ELF file by the Linux 64-bit boot protocol.
  void boot(const std::string& elf_path);
  void save(VmState& state);
  void restore(const VmState& state);

  struct Exit {
    bool is_input;  // the guest waits for a word: answer() before the next run()
    uint32_t word;  // what the guest wrote, if not
  };
  // Runs to the next access of the debug port.
  Exit run();
  void answer(uint32_t word);
  // Lets KVM finish the port access of the last exit, without running the guest.
  void settle();

 private:
  void load_msrs(VmState& state) const;

  const KvmSystem& system_;
  Ram& ram_;
  int vm_;
  int vcpu_;
  kvm_run* run_;
  uint32_t xsave_bytes_;
};

// The MSRs that can be read and written back, found once on a scratch VM.
std::vector<uint32_t> settable_msrs(int kvm);

}  // namespace ramet::bench
