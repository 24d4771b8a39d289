#include <algorithm>
#include <cstring>

#include "base/endian.h"
#include "kvm/abi.h"
#include "kvm/cpuid.h"
#include "kvm/ioctl.h"
#include "kvm/kvm.h"
#include "kvm/msr.h"

namespace ramet::kvm {
namespace {

struct Capability {
  int number;
  const char* name;
};
constexpr Capability kRequired[] = {
    {KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY"},
    {KVM_CAP_SPLIT_IRQCHIP, "KVM_CAP_SPLIT_IRQCHIP"},
    {KVM_CAP_SIGNAL_MSI, "KVM_CAP_SIGNAL_MSI"},
    {KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT"},
    {KVM_CAP_XCRS, "KVM_CAP_XCRS"},
    {KVM_CAP_XSAVE, "KVM_CAP_XSAVE"},
    {KVM_CAP_VCPU_EVENTS, "KVM_CAP_VCPU_EVENTS"},
    {KVM_CAP_MP_STATE, "KVM_CAP_MP_STATE"},
    {KVM_CAP_DEBUGREGS, "KVM_CAP_DEBUGREGS"},
    {KVM_CAP_ADJUST_CLOCK, "KVM_CAP_ADJUST_CLOCK"},
    {KVM_CAP_SYNC_REGS, "KVM_CAP_SYNC_REGS"},
    {KVM_CAP_TSC_DEADLINE_TIMER, "KVM_CAP_TSC_DEADLINE_TIMER"},
};

constexpr size_t kMaxCpuidEntries = 512;
constexpr size_t kMaxMsrs = 2048;

// Writing these makes KVM rewrite a page of the guest; their effect is already in guest memory.
constexpr uint32_t kMsrWallClock = 0x11;
constexpr uint32_t kMsrWallClockNew = 0x4b564d00;

Result<std::vector<CpuidEntry>> supported_cpuid(int fd) {
  std::string buffer(sizeof(kvm_cpuid2) + kMaxCpuidEntries * sizeof(kvm_cpuid_entry2), '\0');
  auto* list = reinterpret_cast<kvm_cpuid2*>(buffer.data());
  list->nent = kMaxCpuidEntries;
  TRY(call(fd, KVM_GET_SUPPORTED_CPUID, list, "KVM_GET_SUPPORTED_CPUID"));
  std::vector<CpuidEntry> out;
  for (uint32_t i = 0; i < list->nent; i++) {
    const kvm_cpuid_entry2& e = list->entries[i];
    out.push_back({e.function, e.index, e.flags, e.eax, e.ebx, e.ecx, e.edx});
  }
  return out;
}

void append_registers(std::string& s, std::initializer_list<uint32_t> registers) {
  for (const uint32_t r : registers) s.append(reinterpret_cast<const char*>(&r), sizeof r);
}

}  // namespace

Result<System> System::open(UniqueFd kvm) {
  TRY_ASSIGN(const int version, call(kvm.get(), KVM_GET_API_VERSION, 0, "KVM_GET_API_VERSION"));
  if (version != KVM_API_VERSION)
    return fail(ErrorKind::kUnsupported,
                "KVM API version is " + std::to_string(version) + ", Ramet needs " + std::to_string(KVM_API_VERSION));
  for (const Capability& c : kRequired) {
    TRY_ASSIGN(const int present, call(kvm.get(), KVM_CHECK_EXTENSION, c.number, "KVM_CHECK_EXTENSION"));
    if (present <= 0) return fail(ErrorKind::kUnsupported, std::string("this KVM lacks ") + c.name);
  }
  TRY_ASSIGN(const int run_bytes, call(kvm.get(), KVM_GET_VCPU_MMAP_SIZE, 0, "KVM_GET_VCPU_MMAP_SIZE"));
  if (static_cast<size_t>(run_bytes) < sizeof(kvm_run))
    return fail(ErrorKind::kUnsupported,
                "KVM run area has " + std::to_string(run_bytes) + " bytes, Ramet needs " + std::to_string(sizeof(kvm_run)));
  TRY_ASSIGN(const std::vector<CpuidEntry> supported, supported_cpuid(kvm.get()));
  System system(std::move(kvm), static_cast<size_t>(run_bytes));
  system.cpuid_ = baseline_cpuid(supported);
  return system;
}

Result<Vm> System::create_vm() const {
  TRY_ASSIGN(const int fd, call(fd_.get(), KVM_CREATE_VM, 0, "KVM_CREATE_VM"));
  return Vm(UniqueFd(fd), run_bytes_);
}

Status System::discover_msrs(const Vcpu& vcpu) {
  std::string list_buffer(sizeof(kvm_msr_list) + kMaxMsrs * sizeof(uint32_t), '\0');
  auto* list = reinterpret_cast<kvm_msr_list*>(list_buffer.data());
  list->nmsrs = kMaxMsrs;
  TRY(call(fd_.get(), KVM_GET_MSR_INDEX_LIST, list, "KVM_GET_MSR_INDEX_LIST"));
  const std::vector<uint32_t> candidates(list->indices, list->indices + std::min<size_t>(list->nmsrs, kMaxMsrs));
  alignas(kvm_msrs) char one_buffer[sizeof(kvm_msrs) + sizeof(kvm_msr_entry)] = {};
  auto* one = reinterpret_cast<kvm_msrs*>(one_buffer);
  msrs_.clear();
  for (const uint32_t index : candidates) {
    if (index == kMsrTsc || index == kMsrTscDeadline || index == kMsrWallClock || index == kMsrWallClockNew) continue;
    one->nmsrs = 1;
    one->entries[0] = kvm_msr_entry{.index = index, .reserved = 0, .data = 0};
    if (::ioctl(vcpu.fd(), KVM_GET_MSRS, one) != 1) continue;
    if (::ioctl(vcpu.fd(), KVM_SET_MSRS, one) != 1) continue;  // readable only: nothing to restore
    msrs_.push_back(index);
  }
  return {};
}

std::string System::cpu_model() const {
  std::string vendor, brand;
  for (const CpuidEntry& e : cpuid_) {
    if (e.function == 0) append_registers(vendor, {e.ebx, e.edx, e.ecx});
    if (e.function >= 0x80000002 && e.function <= 0x80000004) append_registers(brand, {e.eax, e.ebx, e.ecx, e.edx});
  }
  std::string model = vendor + " " + brand.substr(0, brand.find('\0'));
  while (!model.empty() && model.back() == ' ') model.pop_back();
  return model;
}

uint64_t read_tsc() { return __builtin_ia32_rdtsc(); }

}  // namespace ramet::kvm
