// Save and restore of one vCPU. The order is not free: MP_STATE is read first (KVM applies a pending INIT then); CPUID must be
// set before MSRs are read or written; the LAPIC goes before the MSRs and TSC_DEADLINE after the TSC, last (a deadline written
// while LVTT is not yet in deadline mode is ignored, and sleeps never end).
#include <cstring>

#include "kvm/abi.h"
#include "kvm/ioctl.h"
#include "kvm/kvm.h"
#include "kvm/msr.h"

namespace ramet::kvm {
namespace {

template <class T>
std::string bytes_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
Status get(int fd, unsigned long request, const char* name, std::string& out) {
  T value{};
  TRY(call(fd, request, &value, name));
  out = bytes_of(value);
  return {};
}

template <class T>
Status set(int fd, unsigned long request, const char* name, const std::string& in) {
  if (in.size() != sizeof(T))
    return fail(ErrorKind::kCorrupt, std::string(name) + ": saved state has " + std::to_string(in.size()) +
                                         " bytes, this kernel's has " + std::to_string(sizeof(T)));
  T value;
  std::memcpy(&value, in.data(), sizeof value);
  TRY(call(fd, request, &value, name));
  return {};
}

// A kvm_msrs list in a buffer of the right size.
class MsrList {
 public:
  explicit MsrList(size_t count) : buffer_(sizeof(kvm_msrs) + count * sizeof(kvm_msr_entry), '\0') { list()->nmsrs = 0; }
  void add(uint32_t index, uint64_t value) {
    list()->entries[list()->nmsrs++] = kvm_msr_entry{.index = index, .reserved = 0, .data = value};
  }
  kvm_msrs* list() { return reinterpret_cast<kvm_msrs*>(buffer_.data()); }
  // KVM stops at the first MSR it refuses and answers how many it took.
  Status transfer(int fd, unsigned long request, const char* name) {
    if (list()->nmsrs == 0) return {};
    TRY_ASSIGN(const int done, call(fd, request, list(), name));
    if (static_cast<uint32_t>(done) != list()->nmsrs)
      return fail(ErrorKind::kUnsupported, std::string(name) + ": MSR " + std::to_string(list()->entries[done].index) +
                                               " was refused after " + std::to_string(done) + " of " +
                                               std::to_string(list()->nmsrs));
    return {};
  }

 private:
  std::string buffer_;
};

kvm_device_attr tsc_offset_attribute(uint64_t* value) {
  kvm_device_attr a{};
  a.group = KVM_VCPU_TSC_CTRL;
  a.attr = KVM_VCPU_TSC_OFFSET;
  a.addr = reinterpret_cast<uint64_t>(value);
  return a;
}

}  // namespace

// A KVM_RUN that returns at once leaves three states in the shared page: one call for three, while the machine stands still.
Status Vcpu::save_synced(VcpuState& s) {
  kvm_run& page = *shared();
  page.kvm_valid_regs = KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS | KVM_SYNC_X86_EVENTS;
  *immediate_exit() = 1;
  const Result<Exit> exit = run();
  *immediate_exit() = 0;
  page.kvm_valid_regs = 0;
  if (!exit) return tl::unexpected<Error>(exit.error());
  if (exit->kind != Exit::Kind::kInterrupted)
    return fail(ErrorKind::kInternal, "vCPU " + std::to_string(id_) + " had an access pending when it was saved");
  s.regs = bytes_of(page.s.regs.regs);
  s.sregs = bytes_of(page.s.regs.sregs);
  s.events = bytes_of(page.s.regs.events);
  return {};
}

Result<VcpuState> Vcpu::save(const System& system) {
  const int fd = fd_.get();
  VcpuState s;
  TRY(get<kvm_mp_state>(fd, KVM_GET_MP_STATE, "KVM_GET_MP_STATE", s.mp_state));
  TRY(save_synced(s));
  s.xsave.resize(xsave_bytes_);
  TRY(call(fd, xsave_bytes_ > sizeof(kvm_xsave) ? KVM_GET_XSAVE2 : KVM_GET_XSAVE, s.xsave.data(), "KVM_GET_XSAVE"));
  TRY(get<kvm_xcrs>(fd, KVM_GET_XCRS, "KVM_GET_XCRS", s.xcrs));
  TRY(get<kvm_debugregs>(fd, KVM_GET_DEBUGREGS, "KVM_GET_DEBUGREGS", s.debugregs));
  TRY(get<kvm_lapic_state>(fd, KVM_GET_LAPIC, "KVM_GET_LAPIC", s.lapic));

  MsrList list(system.msrs().size() + 2);
  list.add(kMsrTsc, 0);
  for (const uint32_t index : system.msrs()) list.add(index, 0);
  list.add(kMsrTscDeadline, 0);
  TRY(list.transfer(fd, KVM_GET_MSRS, "KVM_GET_MSRS"));
  const kvm_msr_entry* e = list.list()->entries;
  const uint32_t count = list.list()->nmsrs;
  s.tsc = e[0].data;
  s.msrs.reserve(count);
  for (uint32_t i = 1; i + 1 < count; i++) s.msrs.push_back({e[i].index, e[i].data});
  // 0 also means "expired, interrupt not yet injected": let it fire at once instead of losing it.
  s.tsc_deadline = e[count - 1].data ? e[count - 1].data : s.tsc;

  uint64_t offset = 0;
  kvm_device_attr attribute = tsc_offset_attribute(&offset);
  if (::ioctl(fd, KVM_GET_DEVICE_ATTR, &attribute) == 0) s.tsc_offset = offset;
  return s;
}

Status Vcpu::restore(const VcpuState& s, TimeMode mode, const ClockState& saved, uint64_t host_tsc_now) {
  const int fd = fd_.get();
  TRY(set<kvm_sregs>(fd, KVM_SET_SREGS, "KVM_SET_SREGS", s.sregs));  // APIC base and mode, before the LAPIC
  TRY(set<kvm_xcrs>(fd, KVM_SET_XCRS, "KVM_SET_XCRS", s.xcrs));
  if (s.xsave.size() != xsave_bytes_)
    return fail(ErrorKind::kCorrupt, "saved XSAVE area has " + std::to_string(s.xsave.size()) + " bytes, this host's has " +
                                         std::to_string(xsave_bytes_));
  TRY(call(fd, KVM_SET_XSAVE, const_cast<char*>(s.xsave.data()), "KVM_SET_XSAVE"));
  TRY(set<kvm_debugregs>(fd, KVM_SET_DEBUGREGS, "KVM_SET_DEBUGREGS", s.debugregs));
  TRY(set<kvm_regs>(fd, KVM_SET_REGS, "KVM_SET_REGS", s.regs));
  TRY(set<kvm_lapic_state>(fd, KVM_SET_LAPIC, "KVM_SET_LAPIC", s.lapic));

  MsrList list(s.msrs.size() + 2);
  if (s.tsc_offset) {
    // The same shift for every vCPU, so they agree to the tick.
    uint64_t offset = *s.tsc_offset;
    if (mode == TimeMode::kStandsStill) offset -= host_tsc_now - saved.host_tsc;
    kvm_device_attr attribute = tsc_offset_attribute(&offset);
    TRY(call(fd, KVM_SET_DEVICE_ATTR, &attribute, "KVM_VCPU_TSC_OFFSET"));
  } else {
    list.add(kMsrTsc, s.tsc);
  }
  for (const Msr& m : s.msrs) list.add(m.index, m.value);
  list.add(kMsrTscDeadline, s.tsc_deadline);
  TRY(list.transfer(fd, KVM_SET_MSRS, "KVM_SET_MSRS"));

  TRY(set<kvm_mp_state>(fd, KVM_SET_MP_STATE, "KVM_SET_MP_STATE", s.mp_state));
  return set<kvm_vcpu_events>(fd, KVM_SET_VCPU_EVENTS, "KVM_SET_VCPU_EVENTS", s.events);
}

}  // namespace ramet::kvm
