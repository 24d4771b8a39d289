#include "bare_vm.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "die.h"
#include "guests/lib/protocol.h"

namespace ramet::bench {
namespace {

constexpr uint32_t kMsrTsc = 0x10, kMsrTscDeadline = 0x6e0, kMsrWallClock = 0x4b564d00, kMsrWallClockOld = 0x11;
constexpr uint64_t kHoleStart = 3072 * kMiB, kHoleEnd = 4096 * kMiB;
constexpr uint64_t kGdt = 0x500, kBootParams = 0x7000, kPageTables = 0x9000, kBootParamsBytes = 4096;

void set_slot(int vm, uint32_t slot, uint64_t guest_address, uint8_t* memory, uint64_t bytes) {
  kvm_userspace_memory_region region{};
  region.slot = slot;
  region.guest_phys_addr = guest_address;
  region.memory_size = bytes;
  region.userspace_addr = reinterpret_cast<uint64_t>(memory);
  check(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region), "KVM_SET_USER_MEMORY_REGION");
}

void set_max_xcr0(int vcpu) {
  for (uint64_t value : {0xe7ull, 7ull, 3ull}) {
    kvm_xcrs xcrs{};
    xcrs.nr_xcrs = 1;
    xcrs.xcrs[0].value = value;
    if (ioctl(vcpu, KVM_SET_XCRS, &xcrs) == 0) return;
  }
}

kvm_segment flat_segment(uint16_t selector, uint8_t type, bool code) {
  kvm_segment s{};
  s.selector = selector;
  s.limit = 0xffffffff;
  s.type = type;
  s.present = 1;
  s.s = 1;
  s.g = 1;
  s.l = code ? 1 : 0;
  s.db = code ? 0 : 1;
  return s;
}

void write_low_memory(uint8_t* ram) {
  constexpr uint64_t kPresentWritable = 3, kLargePage = 0x80;
  uint64_t* level4 = reinterpret_cast<uint64_t*>(ram + kPageTables);
  uint64_t* level3 = level4 + 512;
  level4[0] = (kPageTables + 0x1000) | kPresentWritable;
  for (uint64_t i = 0; i < 4; i++) {
    uint64_t level2 = kPageTables + 0x2000 + i * 0x1000;
    level3[i] = level2 | kPresentWritable;
    for (uint64_t j = 0; j < 512; j++)
      reinterpret_cast<uint64_t*>(ram + level2)[j] = (i << 30 | j << 21) | kLargePage | kPresentWritable;
  }
  uint64_t* gdt = reinterpret_cast<uint64_t*>(ram + kGdt);
  gdt[2] = 0x00af9b000000ffff;
  gdt[3] = 0x00cf93000000ffff;
  std::memset(ram + kBootParams, 0, kBootParamsBytes);
}

uint64_t load_elf(uint8_t* ram, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  if (bytes.size() < sizeof(Elf64_Ehdr)) die(path.c_str());
  const Elf64_Ehdr* header = reinterpret_cast<const Elf64_Ehdr*>(bytes.data());
  for (int i = 0; i < header->e_phnum; i++) {
    const Elf64_Phdr* segment = reinterpret_cast<const Elf64_Phdr*>(bytes.data() + header->e_phoff) + i;
    if (segment->p_type == PT_LOAD) std::memcpy(ram + segment->p_paddr, bytes.data() + segment->p_offset, segment->p_filesz);
  }
  return header->e_entry;
}

kvm_msrs* as_msrs(std::vector<uint8_t>& bytes) { return reinterpret_cast<kvm_msrs*>(bytes.data()); }

}  // namespace

std::vector<uint32_t> settable_msrs(int kvm) {
  std::vector<uint8_t> list_bytes(sizeof(kvm_msr_list) + 1024 * sizeof(uint32_t));
  kvm_msr_list* list = reinterpret_cast<kvm_msr_list*>(list_bytes.data());
  list->nmsrs = 1024;
  check(ioctl(kvm, KVM_GET_MSR_INDEX_LIST, list), "KVM_GET_MSR_INDEX_LIST");

  int vm = check(ioctl(kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM");
  kvm_enable_cap split{};
  split.cap = KVM_CAP_SPLIT_IRQCHIP;
  split.args[0] = 24;
  check(ioctl(vm, KVM_ENABLE_CAP, &split), "KVM_CAP_SPLIT_IRQCHIP");
  int vcpu = check(ioctl(vm, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU");

  std::vector<uint32_t> settable;
  std::vector<uint8_t> one(sizeof(kvm_msrs) + sizeof(kvm_msr_entry));
  kvm_msrs* msr = as_msrs(one);
  msr->nmsrs = 1;
  for (uint32_t i = 0; i < list->nmsrs; i++) {
    uint32_t index = list->indices[i];
    if (index == kMsrTsc || index == kMsrTscDeadline || index == kMsrWallClock || index == kMsrWallClockOld) continue;
    msr->entries[0].index = index;
    if (ioctl(vcpu, KVM_GET_MSRS, msr) == 1 && ioctl(vcpu, KVM_SET_MSRS, msr) == 1) settable.push_back(index);
  }
  settable.push_back(kMsrTscDeadline);
  close(vcpu);
  close(vm);
  return settable;
}

KvmSystem::KvmSystem() : fd(check(open("/dev/kvm", O_RDWR | O_CLOEXEC), "/dev/kvm")) {
  run_bytes = check(ioctl(fd, KVM_GET_VCPU_MMAP_SIZE, 0), "KVM_GET_VCPU_MMAP_SIZE");
  constexpr uint32_t kMaxEntries = 256;
  cpuid.resize(sizeof(kvm_cpuid2) + kMaxEntries * sizeof(kvm_cpuid_entry2));
  kvm_cpuid2* entries = reinterpret_cast<kvm_cpuid2*>(cpuid.data());
  entries->nent = kMaxEntries;
  check(ioctl(fd, KVM_GET_SUPPORTED_CPUID, entries), "KVM_GET_SUPPORTED_CPUID");
  for (uint32_t i = 0; i < entries->nent; i++)
    if (entries->entries[i].function == 1) entries->entries[i].ecx |= 1u << 24;  // TSC deadline timer
  msr_list = settable_msrs(fd);
}

BareVm::BareVm(const KvmSystem& system, Ram& ram) : system_(system), ram_(ram) {
  vm_ = check(ioctl(system.fd, KVM_CREATE_VM, 0), "KVM_CREATE_VM");
  set_slot(vm_, 0, 0, ram.data(), std::min(ram.bytes(), kHoleStart));
  if (ram.bytes() > kHoleStart) set_slot(vm_, 1, kHoleEnd, ram.data() + kHoleStart, ram.bytes() - kHoleStart);
  ioctl(vm_, KVM_SET_TSS_ADDR, 0xfffbd000);  // Intel only; not there elsewhere
  kvm_enable_cap split{};
  split.cap = KVM_CAP_SPLIT_IRQCHIP;
  split.args[0] = 24;
  check(ioctl(vm_, KVM_ENABLE_CAP, &split), "KVM_CAP_SPLIT_IRQCHIP");
  xsave_bytes_ = static_cast<uint32_t>(std::max(4096, ioctl(vm_, KVM_CHECK_EXTENSION, KVM_CAP_XSAVE2)));
  vcpu_ = check(ioctl(vm_, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU");
  void* p = mmap(nullptr, static_cast<size_t>(system.run_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, vcpu_, 0);
  if (p == MAP_FAILED) die("map kvm_run");
  madvise(p, static_cast<size_t>(system.run_bytes), MADV_DONTFORK);  // else a child keeps its parent's VM alive
  run_ = static_cast<kvm_run*>(p);
  check(ioctl(vcpu_, KVM_SET_CPUID2, system.cpuid.data()), "KVM_SET_CPUID2");
}

BareVm::~BareVm() {
  munmap(run_, static_cast<size_t>(system_.run_bytes));
  close(vcpu_);
  close(vm_);
}

void BareVm::boot(const std::string& elf_path) {
  write_low_memory(ram_.data());
  set_max_xcr0(vcpu_);
  kvm_sregs sregs;
  check(ioctl(vcpu_, KVM_GET_SREGS, &sregs), "KVM_GET_SREGS");
  sregs.cs = flat_segment(0x10, 11, true);
  sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = flat_segment(0x18, 3, false);
  sregs.tr = kvm_segment{};
  sregs.tr.type = 11;
  sregs.tr.present = 1;
  sregs.tr.limit = 0xffff;
  sregs.gdt.base = kGdt;
  sregs.gdt.limit = 31;
  sregs.cr3 = kPageTables;
  sregs.cr4 = 1u << 5;                                     // PAE
  sregs.cr0 = 1u << 31 | 1u << 5 | 1u << 4 | 1u << 1 | 1;  // PG, NE, ET, MP, PE
  sregs.efer = 1u << 8 | 1u << 10;                         // LME, LMA
  check(ioctl(vcpu_, KVM_SET_SREGS, &sregs), "KVM_SET_SREGS");
  kvm_regs regs{};
  regs.rip = load_elf(ram_.data(), elf_path);
  regs.rsi = kBootParams;
  regs.rflags = 2;
  check(ioctl(vcpu_, KVM_SET_REGS, &regs), "KVM_SET_REGS");
}

void BareVm::load_msrs(VmState& state) const {
  size_t count = system_.msr_list.size();
  state.msrs.assign(sizeof(kvm_msrs) + count * sizeof(kvm_msr_entry), 0);
  kvm_msrs* msrs = as_msrs(state.msrs);
  msrs->nmsrs = static_cast<uint32_t>(count);
  for (size_t i = 0; i < count; i++) msrs->entries[i].index = system_.msr_list[i];
  int got = ioctl(vcpu_, KVM_GET_MSRS, msrs);
  if (got != static_cast<int>(count)) die("KVM_GET_MSRS");
}

void BareVm::save(VmState& state) {
  check(ioctl(vcpu_, KVM_GET_MP_STATE, &state.mp), "KVM_GET_MP_STATE");
  check(ioctl(vcpu_, KVM_GET_REGS, &state.regs), "KVM_GET_REGS");
  check(ioctl(vcpu_, KVM_GET_SREGS, &state.sregs), "KVM_GET_SREGS");
  state.xsave.resize(xsave_bytes_);
  check(ioctl(vcpu_, xsave_bytes_ > 4096 ? KVM_GET_XSAVE2 : KVM_GET_XSAVE, state.xsave.data()), "KVM_GET_XSAVE");
  check(ioctl(vcpu_, KVM_GET_XCRS, &state.xcrs), "KVM_GET_XCRS");
  check(ioctl(vcpu_, KVM_GET_DEBUGREGS, &state.debugregs), "KVM_GET_DEBUGREGS");
  check(ioctl(vcpu_, KVM_GET_LAPIC, &state.lapic), "KVM_GET_LAPIC");
  load_msrs(state);
  check(ioctl(vcpu_, KVM_GET_VCPU_EVENTS, &state.events), "KVM_GET_VCPU_EVENTS");
  kvm_device_attr attr{};
  attr.group = KVM_VCPU_TSC_CTRL;
  attr.attr = KVM_VCPU_TSC_OFFSET;
  attr.addr = reinterpret_cast<uint64_t>(&state.tsc_offset);
  state.has_tsc_offset = ioctl(vcpu_, KVM_GET_DEVICE_ATTR, &attr) == 0;
  check(ioctl(vm_, KVM_GET_CLOCK, &state.clock), "KVM_GET_CLOCK");
}

void BareVm::restore(const VmState& state) {
  check(ioctl(vcpu_, KVM_SET_SREGS, &state.sregs), "KVM_SET_SREGS");
  check(ioctl(vcpu_, KVM_SET_XCRS, &state.xcrs), "KVM_SET_XCRS");
  check(ioctl(vcpu_, KVM_SET_XSAVE, state.xsave.data()), "KVM_SET_XSAVE");
  check(ioctl(vcpu_, KVM_SET_DEBUGREGS, &state.debugregs), "KVM_SET_DEBUGREGS");
  check(ioctl(vcpu_, KVM_SET_REGS, &state.regs), "KVM_SET_REGS");
  check(ioctl(vcpu_, KVM_SET_LAPIC, &state.lapic), "KVM_SET_LAPIC");
  if (state.has_tsc_offset) {
    kvm_device_attr attr{};
    attr.group = KVM_VCPU_TSC_CTRL;
    attr.attr = KVM_VCPU_TSC_OFFSET;
    attr.addr = reinterpret_cast<uint64_t>(&state.tsc_offset);
    check(ioctl(vcpu_, KVM_SET_DEVICE_ATTR, &attr), "KVM_VCPU_TSC_OFFSET");
  }
  const kvm_msrs* msrs = reinterpret_cast<const kvm_msrs*>(state.msrs.data());
  if (ioctl(vcpu_, KVM_SET_MSRS, msrs) != static_cast<int>(msrs->nmsrs)) die("KVM_SET_MSRS");
  check(ioctl(vcpu_, KVM_SET_MP_STATE, &state.mp), "KVM_SET_MP_STATE");
  check(ioctl(vcpu_, KVM_SET_VCPU_EVENTS, &state.events), "KVM_SET_VCPU_EVENTS");
  kvm_clock_data clock = state.clock;
  clock.flags = 0;
  ioctl(vm_, KVM_SET_CLOCK, &clock);
}

BareVm::Exit BareVm::run() {
  for (;;) {
    if (ioctl(vcpu_, KVM_RUN, 0) < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      die("KVM_RUN");
    }
    if (run_->exit_reason != KVM_EXIT_IO || run_->io.port != guests::kDebugPort) {
      std::fprintf(stderr, "fork_floor: exit reason %u\n", run_->exit_reason);
      _exit(1);
    }
    if (run_->io.direction == KVM_EXIT_IO_IN) return {true, 0};
    uint32_t word;
    std::memcpy(&word, reinterpret_cast<uint8_t*>(run_) + run_->io.data_offset, sizeof word);
    return {false, word};
  }
}

void BareVm::answer(uint32_t word) { std::memcpy(reinterpret_cast<uint8_t*>(run_) + run_->io.data_offset, &word, sizeof word); }

void BareVm::settle() {
  run_->immediate_exit = 1;
  while (ioctl(vcpu_, KVM_RUN, 0) == 0) {
  }
  run_->immediate_exit = 0;
  if (errno != EINTR && errno != EAGAIN) die("KVM_RUN with immediate_exit");
}

}  // namespace ramet::bench
