// vmm/boot/kernel.h - puts an uncompressed ELF64 kernel, an initial RAM disk and the boot parameters into guest memory, for the
// 64-bit entry of the Linux boot protocol; no firmware. Every byte of the files is untrusted. Not here: vCPU registers (kvm/).
// Thread: before the vCPUs start.
#pragma once

#include <string>

#include "base/result.h"
#include "kvm/kvm.h"
#include "vmm/memory/guest_memory.h"

namespace ramet::vmm {

inline constexpr size_t kMaxCmdlineBytes = 2047;

struct KernelSource {
  int kernel_fd = -1;  // borrowed
  int initrd_fd = -1;  // borrowed; -1 = none
  std::string cmdline;
  unsigned vcpus = 1;
};

// Start registers of the boot processor.
// Errors: kInvalid (not an x86-64 ELF executable, segments outside RAM, command line or initial RAM disk too long; with the
// value and the limit), kCorrupt (file ends early), kIo.
Result<kvm::BootRegisters> load_kernel(const GuestMemory& memory, const KernelSource& source);

}  // namespace ramet::vmm
