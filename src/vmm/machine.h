// vmm/machine.h - one microVM put together: RAM, buses, devices and, once built, the KVM VM with its vCPU threads.
//
//   no VM --build()--> built --boot()/restore()--> standing --go_on()--> running --stand_still()--> standing
//     ^                                                |  ^                                            |
//     |                                                '--------- save()/capture, any number ----------'
//     '-- after_fork() (in a forked child; the state it was standing in is kept) --'
//
// *Standing* means: vCPUs out of KVM_RUN with registers final, devices quiesced, nothing in flight that could raise an
// interrupt. Only then may the process be forked or the state be saved. Not here: the control protocol (monitor.h), fork(2)
// itself (fork.h). Thread: the event loop's; exits come on vCPU threads.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kvm/kvm.h"
#include "vmm/bus.h"
#include "vmm/devices/balloon/device.h"
#include "vmm/devices/block/disk.h"
#include "vmm/devices/debug_port/device.h"
#include "vmm/devices/ioapic/device.h"
#include "vmm/devices/power/device.h"
#include "vmm/devices/rng/device.h"
#include "vmm/devices/serial/console_log.h"
#include "vmm/devices/serial/device.h"
#include "vmm/devices/vmgenid/device.h"
#include "vmm/devices/vsock/device.h"
#include "vmm/event_loop.h"
#include "vmm/layout.h"
#include "vmm/memory/guest_ram.h"
#include "vmm/snapshot/vmstate.h"
#include "vmm/vcpu_set.h"
#include "vmm/virtio/mmio.h"

namespace ramet::vmm {

// How a machine ended by itself.
struct EndOfMachine {
  std::string reason;  // poweroff, reset, triple_fault, panic, internal_error
  std::string detail;
};

class Machine {
 public:
  struct Options {
    unsigned vcpus = 1;
    bool debug_port = false;
  };
  // Both are called on a vCPU's thread.
  struct Callbacks {
    std::function<void(EndOfMachine)> ended;  // at most once
    std::function<void(unsigned vcpu, uint32_t word)> debug_word;
  };
  struct Parts {
    std::unique_ptr<GuestRam> ram;
    std::unique_ptr<Disk> disk;  // may be absent
    UniqueFd console;            // may be absent
  };
  // Requires: loop outlives it.   Errors: kInvalid (number of vCPUs).
  static Result<std::unique_ptr<Machine>> create(Parts parts, Options options, EventLoop& loop, Callbacks callbacks);
  ~Machine();

  // VM, memory slots, interrupt controller, vCPUs; in the order that is cheap.   Requires: system outlives the machine.
  Status build(const kvm::System& system);
  // First start of a kernel that lies in RAM already.   Requires: built.
  Status boot(const kvm::BootRegisters& registers, const GenerationId& id);
  // Puts the kept or given state into the fresh VM and tells the guest that it is a copy.   Requires: built.
  Status restore(kvm::TimeMode mode, const GenerationId& id);

  // Errors: kTimeout (goes on running then), kConflict (the machine ended).   No-op when standing already.
  Status stand_still(Deadline deadline);
  // Requires: standing.
  void go_on();
  bool standing() const { return !running_; }
  bool ended() const { return ended_.load(); }

  // In a forked child, first thing: no VM, no threads, fresh device internals; the event loop is not used any more.
  void after_fork();
  // Then, once the loop is a new one.
  void use_loop(EventLoop& loop) { vsock_.use_loop(loop); }

  // Everything but RAM and disk, for another process.   Requires: standing.
  VmState save() const;
  // Fills a machine that was just created.   Errors: kCorrupt.
  Status load(VmState state);

  GuestRam& ram() const { return *ram_; }
  ConsoleLog& console() { return console_; }
  DebugPort* debug_port() { return debug_port_.get(); }
  const PowerControl& power() const { return power_; }
  Disk* disk() const { return disk_.get(); }
  VsockDevice& vsock() { return vsock_; }
  const VsockDevice& vsock() const { return vsock_; }
  const BalloonDevice& balloon() const { return balloon_; }
  const Options& options() const { return options_; }
  uint64_t exits() const { return vcpus_ ? vcpus_->exits() : 0; }
  int64_t stopped_at_ns() const { return vcpus_ ? vcpus_->stopped_at_ns() : 0; }
  // After go_on(): when the first vCPU entered the guest (CLOCK_MONOTONIC ns); waits a moment for it, and on a host too busy to
  // run it answers the end of that moment. 0: there is no vCPU.
  int64_t wait_entered_ns() const;
  // Descriptors that a forked child must keep.
  std::vector<int> descriptors_to_keep() const;

 private:
  // What the KVM objects hold, at one instant.
  struct CpuState {
    std::vector<kvm::VcpuState> vcpus;
    kvm::ClockState clock;
  };
  Machine(Parts parts, Options options, Callbacks callbacks);
  Status connect_buses();
  Status attach(layout::VirtioSlot slot, VirtioDevice& device);
  Status stop_and_save(Deadline deadline);
  bool on_exit(unsigned vcpu, kvm::Exit& exit);
  void on_port(const kvm::Exit& exit);
  void on_mmio(const kvm::Exit& exit);
  bool end(std::string reason, std::string detail);
  void send_message(uint64_t address, uint32_t data);
  std::function<void()> edge(uint32_t gsi) {
    return [this, gsi] { ioapic_.pulse(gsi); };
  }

  const Options options_;
  const Callbacks callbacks_;
  std::unique_ptr<GuestRam> ram_;
  Bus ports_, mmio_;
  ConsoleLog console_;
  Ioapic ioapic_;
  Serial serial_;
  PowerControl power_;
  VmGenerationId generation_id_;
  std::unique_ptr<DebugPort> debug_port_;
  std::unique_ptr<Disk> disk_;
  VsockDevice vsock_;
  RngDevice rng_;
  BalloonDevice balloon_;
  std::array<std::unique_ptr<MmioTransport>, layout::kVirtioSlots> transports_;

  kvm::Vm vm_;
  std::unique_ptr<VcpuSet> vcpus_;  // absent without a VM
  CpuState cpu_state_;              // valid while standing after stand_still() or load()
  bool running_ = false;
  bool quiesced_ = false;
  std::atomic<bool> ended_{false};
};

}  // namespace ramet::vmm
