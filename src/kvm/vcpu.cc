#include <cstring>
#include <new>

#include "kvm/abi.h"
#include "kvm/cpuid.h"
#include "kvm/ioctl.h"
#include "kvm/kvm.h"

namespace ramet::kvm {
namespace {

constexpr uint64_t kCr0 = 1ull << 31 | 1ull << 5 | 1ull << 4 | 1ull << 1 | 1ull;  // PG NE ET MP PE
constexpr uint64_t kCr4Pae = 1ull << 5;
constexpr uint64_t kEferLongMode = 1ull << 8 | 1ull << 10;  // LME LMA

kvm_segment flat_segment(uint16_t selector, bool code) {
  kvm_segment s{};
  s.selector = selector;
  s.limit = 0xffffffff;
  s.type = code ? 11 : 3;
  s.present = 1;
  s.s = 1;
  s.g = 1;
  s.l = code;
  s.db = !code;
  return s;
}

}  // namespace

volatile uint8_t* Vcpu::immediate_exit() const { return &shared()->immediate_exit; }

Result<Exit> Vcpu::run() {
  const int r = ::ioctl(fd_.get(), KVM_RUN, 0);
  Exit e;
  if (r < 0) {
    if (errno == EINTR) {
      e.kind = Exit::Kind::kInterrupted;
      return e;
    }
    if (errno == EAGAIN) {
      e.kind = Exit::Kind::kAgain;
      return e;
    }
    return fail_errno("KVM_RUN of vCPU " + std::to_string(id_));
  }
  kvm_run* s = shared();
  switch (s->exit_reason) {
    case KVM_EXIT_IO:
      e.kind = Exit::Kind::kIo;
      e.io.port = s->io.port;
      e.io.size = s->io.size;
      e.io.count = s->io.count;
      e.io.write = s->io.direction == KVM_EXIT_IO_OUT;
      e.io.data = reinterpret_cast<std::byte*>(s) + s->io.data_offset;
      break;
    case KVM_EXIT_MMIO:
      e.kind = Exit::Kind::kMmio;
      e.mmio.address = s->mmio.phys_addr;
      e.mmio.length = s->mmio.len;
      e.mmio.write = s->mmio.is_write;
      e.mmio.data = reinterpret_cast<std::byte*>(s->mmio.data);
      break;
    case KVM_EXIT_INTR: e.kind = Exit::Kind::kInterrupted; break;
    case KVM_EXIT_HLT: e.kind = Exit::Kind::kHalt; break;
    case KVM_EXIT_SHUTDOWN: e.kind = Exit::Kind::kShutdown; break;
    case KVM_EXIT_SYSTEM_EVENT:
      e.kind = Exit::Kind::kSystemEvent;
      e.detail = s->system_event.type;
      break;
    case KVM_EXIT_FAIL_ENTRY:
      e.kind = Exit::Kind::kFailEntry;
      e.detail = s->fail_entry.hardware_entry_failure_reason;
      break;
    case KVM_EXIT_INTERNAL_ERROR:
      e.kind = Exit::Kind::kInternalError;
      e.detail = s->internal.suberror;
      break;
    default: e.kind = Exit::Kind::kOther; e.detail = s->exit_reason;
  }
  return e;
}

Status Vcpu::set_cpuid(const System& system, unsigned vcpu_count) {
  const std::vector<CpuidEntry> entries = vcpu_cpuid(system.cpuid(), id_, vcpu_count);
  std::string buffer(sizeof(kvm_cpuid2) + entries.size() * sizeof(kvm_cpuid_entry2), '\0');
  auto* list = reinterpret_cast<kvm_cpuid2*>(buffer.data());
  list->nent = static_cast<uint32_t>(entries.size());
  for (size_t i = 0; i < entries.size(); i++) {
    const CpuidEntry& e = entries[i];
    list->entries[i] = kvm_cpuid_entry2{.function = e.function,
                                        .index = e.index,
                                        .flags = e.flags,
                                        .eax = e.eax,
                                        .ebx = e.ebx,
                                        .ecx = e.ecx,
                                        .edx = e.edx,
                                        .padding = {}};
  }
  TRY(call(fd_.get(), KVM_SET_CPUID2, list, "KVM_SET_CPUID2"));
  return {};
}

Status Vcpu::set_boot_registers(const BootRegisters& b) {
  kvm_sregs s{};
  TRY(call(fd_.get(), KVM_GET_SREGS, &s, "KVM_GET_SREGS"));
  s.cs = flat_segment(b.code_selector, true);
  s.ds = s.es = s.fs = s.gs = s.ss = flat_segment(b.data_selector, false);
  s.tr = kvm_segment{};
  s.tr.type = 11;
  s.tr.present = 1;
  s.tr.limit = 0xffff;
  s.gdt.base = b.gdt_base;
  s.gdt.limit = b.gdt_limit;
  s.idt.base = 0;
  s.idt.limit = 0;
  s.cr0 = kCr0;
  s.cr3 = b.cr3;
  s.cr4 = kCr4Pae;
  s.efer = kEferLongMode;
  TRY(call(fd_.get(), KVM_SET_SREGS, &s, "KVM_SET_SREGS"));
  kvm_regs r{};
  r.rip = b.rip;
  r.rsi = b.rsi;
  r.rsp = b.rsp;
  r.rflags = 2;
  TRY(call(fd_.get(), KVM_SET_REGS, &r, "KVM_SET_REGS"));
  return {};
}

Status Vcpu::notify_paused() {
  // EINVAL: the guest has not switched kvm-clock on (yet): nothing to tell it.
  if (::ioctl(fd_.get(), KVM_KVMCLOCK_CTRL, 0) < 0 && errno != EINVAL) return fail_errno("KVM_KVMCLOCK_CTRL");
  return {};
}

void Vcpu::close() {
  run_ = MappedRegion();
  fd_.reset();
}

void Vcpu::abandon_after_fork() {
  // Safety: MADV_DONTFORK removed the range from this process, and munmap of it could hit a mapping made there since.
  new (&run_) MappedRegion();
  fd_.reset();
}

}  // namespace ramet::kvm
