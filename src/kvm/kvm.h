// kvm/kvm.h - typed handles of KVM objects: System (/dev/kvm), Vm, Vcpu. The only folder that sees <linux/kvm.h>.
// Order matters (measured): create_vm, add_memory for all slots, enable_split_irqchip, then vCPUs; everything else is ten times
// slower to build and to close. Not here: what an exit means, threads, devices.
// A forked child must close() the inherited Vm and Vcpu handles and make new ones; System is reused. kvm_run mappings are not
// inherited (MADV_DONTFORK): the parent's VM would stay alive as long as the child.
// Thread: Vm::signal_msi from any thread; a Vcpu from its own thread only, except immediate_exit(), which is async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_region.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "kvm/state.h"

struct kvm_run;

namespace ramet::kvm {

struct CpuidEntry {
  uint32_t function = 0, index = 0, flags = 0, eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Why KVM_RUN returned. Pointers lead into the shared run area and are valid until the next run().
struct Exit {
  enum class Kind {
    kIo,           // port access: io
    kMmio,         // memory-mapped access: mmio
    kInterrupted,  // signal or immediate_exit
    kAgain,        // an application processor waits for its start-up IPI
    kHalt,
    kShutdown,       // triple fault
    kSystemEvent,    // detail = type
    kFailEntry,      // detail = hardware reason
    kInternalError,  // detail = suberror
    kOther,          // detail = exit reason
  };
  Kind kind = Kind::kOther;
  uint64_t detail = 0;
  struct {
    uint16_t port = 0;
    uint8_t size = 0;  // 1, 2 or 4 bytes per element
    uint32_t count = 0;
    bool write = false;
    std::byte* data = nullptr;  // size * count bytes; a read is answered by filling it
  } io;
  struct {
    uint64_t address = 0;
    uint32_t length = 0;  // 1..8
    bool write = false;
    std::byte* data = nullptr;
  } mmio;
};

struct BootRegisters {
  uint64_t rip = 0, rsi = 0, rsp = 0;
  uint64_t cr3 = 0;  // identity map
  uint64_t gdt_base = 0;
  uint16_t gdt_limit = 0;
  uint16_t code_selector = 0, data_selector = 0;
};

class System;

class Vcpu {
 public:
  Vcpu(Vcpu&&) = default;
  Vcpu& operator=(Vcpu&&) = default;

  // Enters the guest. Errors: kIo for what is not an Exit (by errno).
  Result<Exit> run();
  // Nonzero makes the next KVM_RUN return at once with kInterrupted. Written from a signal handler too.
  volatile uint8_t* immediate_exit() const;

  Status set_cpuid(const System& system, unsigned vcpu_count);
  // 64-bit entry of the Linux boot protocol; only for the boot processor.
  Status set_boot_registers(const BootRegisters& r);

  // Requires: the pending exit was completed (run() with immediate_exit until kInterrupted). By the vCPU's own thread.
  Result<VcpuState> save(const System& system);
  // After set_cpuid(). saved/now: clocks of the save and of the host at restore, used by kStandsStill only.
  Status restore(const VcpuState& state, TimeMode mode, const ClockState& saved, uint64_t host_tsc_now);
  // Tells the guest's watchdogs that it was stopped: call before it goes on after a long stop. A guest without kvm-clock is not
  // an error.
  Status notify_paused();

  unsigned id() const { return id_; }
  int fd() const { return fd_.get(); }
  // Closes descriptor and mapping (also in a forked child, where the mapping does not exist).
  void close();
  // In a forked child: the run mapping is not there (MADV_DONTFORK); forget it without unmapping, close the descriptor.
  void abandon_after_fork();

 private:
  friend class Vm;
  Status save_synced(VcpuState& state);
  Vcpu(unsigned id, UniqueFd fd, MappedRegion run, size_t xsave_bytes)
      : id_(id), fd_(std::move(fd)), run_(std::move(run)), xsave_bytes_(xsave_bytes) {}
  kvm_run* shared() const { return reinterpret_cast<kvm_run*>(run_.data()); }
  unsigned id_;
  UniqueFd fd_;
  MappedRegion run_;
  size_t xsave_bytes_;
};

class Vm {
 public:
  Vm() = default;
  Vm(Vm&&) = default;
  Vm& operator=(Vm&&) = default;

  // Before enable_split_irqchip(). guest_address, bytes and host are page-aligned.
  Status add_memory(unsigned slot, uint64_t guest_address, uint64_t bytes, std::byte* host);
  // LAPICs in the kernel, IOAPIC in user space. After all memory, before the first vCPU.
  Status enable_split_irqchip();
  Result<Vcpu> create_vcpu(unsigned id);

  // Message-signalled interrupt. True when delivered to some LAPIC.
  Result<bool> signal_msi(uint64_t address, uint32_t data) const;

  Result<ClockState> clock() const;
  // `restored_at`: the moment whose TSC the vCPUs were restored with; what passed since belongs to the guest's time in both
  // clocks.
  Status set_clock(const ClockState& saved, TimeMode mode, const Moment& restored_at);

  int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }

 private:
  friend class System;
  Vm(UniqueFd fd, size_t run_bytes) : fd_(std::move(fd)), run_bytes_(run_bytes) {}
  UniqueFd fd_;
  size_t run_bytes_ = 0;
};

class System {
 public:
  // Takes over a descriptor of /dev/kvm.   Errors: kUnsupported (API version, a missing capability, named), kIo.
  static Result<System> open(UniqueFd kvm);
  System(System&&) = default;
  System& operator=(System&&) = default;

  Result<Vm> create_vm() const;
  // The MSRs that read and set back on this host; found once with a throw-away vCPU, then inherited by forks.
  Status discover_msrs(const Vcpu& vcpu);
  const std::vector<uint32_t>& msrs() const { return msrs_; }
  // Supported by KVM and within our baseline, before per-vCPU topology.
  const std::vector<CpuidEntry>& cpuid() const { return cpuid_; }
  // Vendor and brand string, for messages about incompatible hosts.
  std::string cpu_model() const;

  int fd() const { return fd_.get(); }

 private:
  System(UniqueFd fd, size_t run_bytes) : fd_(std::move(fd)), run_bytes_(run_bytes) {}
  UniqueFd fd_;
  size_t run_bytes_;
  std::vector<CpuidEntry> cpuid_;
  std::vector<uint32_t> msrs_;
};

// The host's time stamp counter.
uint64_t read_tsc();
Moment this_moment();

}  // namespace ramet::kvm
