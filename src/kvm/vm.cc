#include <sys/mman.h>

#include <limits>

#include "base/clock.h"
#include "kvm/abi.h"
#include "kvm/ioctl.h"
#include "kvm/kvm.h"

namespace ramet::kvm {
namespace {
// Intel only, harmless on AMD: three pages and one page in the device hole that KVM needs for real-mode emulation.
constexpr uint64_t kTssAddress = 0xfffbd000;
constexpr uint64_t kIdentityMapAddress = 0xfffbc000;
constexpr uint64_t kIoapicPins = 24;
constexpr size_t kXsaveBytes = 4096;

// Two clocks are read, or one is set by the other, as one moment: when this thread was interrupted in between, once more. The
// guest's watchdog notices a skew of a few hundred microseconds between TSC and kvm-clock.
constexpr int64_t kCloseEnoughNs = 50'000;
constexpr int kClockTries = 8;
}  // namespace

Status Vm::add_memory(unsigned slot, uint64_t guest_address, uint64_t bytes, std::byte* host) {
  kvm_userspace_memory_region r{};
  r.slot = slot;
  r.guest_phys_addr = guest_address;
  r.memory_size = bytes;
  r.userspace_addr = reinterpret_cast<uint64_t>(host);
  TRY(call(fd_.get(), KVM_SET_USER_MEMORY_REGION, &r, "KVM_SET_USER_MEMORY_REGION"));
  return {};
}

Status Vm::enable_split_irqchip() {
  (void)::ioctl(fd_.get(), KVM_SET_TSS_ADDR, kTssAddress);
  uint64_t identity = kIdentityMapAddress;
  (void)::ioctl(fd_.get(), KVM_SET_IDENTITY_MAP_ADDR, &identity);
  kvm_enable_cap e{};
  e.cap = KVM_CAP_SPLIT_IRQCHIP;
  e.args[0] = kIoapicPins;
  TRY(call(fd_.get(), KVM_ENABLE_CAP, &e, "KVM_ENABLE_CAP(KVM_CAP_SPLIT_IRQCHIP)"));
  return {};
}

Result<Vcpu> Vm::create_vcpu(unsigned id) {
  TRY_ASSIGN(const int raw, call(fd_.get(), KVM_CREATE_VCPU, static_cast<unsigned long>(id), "KVM_CREATE_VCPU"));
  UniqueFd fd(raw);
  TRY_ASSIGN(MappedRegion run, MappedRegion::map(run_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get()));
  // Inherited by fork, the mapping would hold the parent's VM alive until the child ends.
  if (::madvise(run.data(), run.size(), MADV_DONTFORK) < 0) return fail_errno("madvise(MADV_DONTFORK) of the run area");
  const int xsave2 = ::ioctl(fd_.get(), KVM_CHECK_EXTENSION, KVM_CAP_XSAVE2);
  const size_t xsave_bytes = xsave2 > static_cast<int>(kXsaveBytes) ? static_cast<size_t>(xsave2) : kXsaveBytes;
  return Vcpu(id, std::move(fd), std::move(run), xsave_bytes);
}

Result<bool> Vm::signal_msi(uint64_t address, uint32_t data) const {
  kvm_msi m{};
  m.address_lo = static_cast<uint32_t>(address);
  m.address_hi = static_cast<uint32_t>(address >> 32);
  m.data = data;
  TRY_ASSIGN(const int delivered, call(fd_.get(), KVM_SIGNAL_MSI, &m, "KVM_SIGNAL_MSI"));
  return delivered > 0;
}

Result<ClockState> Vm::clock() const {
  ClockState best;
  int64_t best_width = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kClockTries && best_width > kCloseEnoughNs; i++) {
    kvm_clock_data c{};
    const int64_t before = monotonic_raw_ns();
    TRY(call(fd_.get(), KVM_GET_CLOCK, &c, "KVM_GET_CLOCK"));
    const uint64_t tsc = c.flags & KVM_CLOCK_HOST_TSC ? c.host_tsc : read_tsc();
    const int64_t width = monotonic_raw_ns() - before;
    if (width >= best_width) continue;
    best_width = width;
    best = ClockState{.kvmclock_ns = c.clock, .host_tsc = tsc, .monotonic_raw_ns = before + width / 2};
  }
  return best;
}

Status Vm::set_clock(const ClockState& saved, TimeMode mode, const Moment& restored_at) {
  const int64_t since = mode == TimeMode::kRunsOn ? saved.monotonic_raw_ns : restored_at.monotonic_raw_ns;
  for (int i = 0; i < kClockTries; i++) {
    kvm_clock_data c{};  // flags 0: no jump by KVM_CLOCK_REALTIME
    const int64_t before = monotonic_raw_ns();
    c.clock = saved.kvmclock_ns + static_cast<uint64_t>(before - since);
    TRY(call(fd_.get(), KVM_SET_CLOCK, &c, "KVM_SET_CLOCK"));
    if (monotonic_raw_ns() - before <= kCloseEnoughNs) break;
  }
  return {};
}

Moment this_moment() {
  Moment best;
  int64_t best_width = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kClockTries && best_width > kCloseEnoughNs; i++) {
    const int64_t before = monotonic_raw_ns();
    const uint64_t tsc = read_tsc();
    const int64_t width = monotonic_raw_ns() - before;
    if (width >= best_width) continue;
    best_width = width;
    best = Moment{.host_tsc = tsc, .monotonic_raw_ns = before + width / 2};
  }
  return best;
}

}  // namespace ramet::kvm
