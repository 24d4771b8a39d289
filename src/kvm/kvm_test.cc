#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "base/file.h"
#include "kvm/cpuid.h"
#include "kvm/kvm.h"
#include "kvm/probe.h"

namespace ramet::kvm {
namespace {

TEST(Cpuid, BaselineDropsWhatCannotTravel) {
  const std::vector<CpuidEntry> all = {
      {.function = 1, .ecx = ~0u, .edx = ~0u},    {.function = 7, .index = 0, .ebx = ~0u, .ecx = ~0u, .edx = ~0u},
      {.function = 0xd, .index = 0, .eax = 0xff}, {.function = 0x12},
      {.function = 0x40000001, .eax = ~0u},       {.function = 0x80000007, .edx = ~0u},
  };
  const std::vector<CpuidEntry> kept = baseline_cpuid(all);
  ASSERT_EQ(kept.size(), 5u);
  EXPECT_EQ(kept[0].ecx & (1u << 5), 0u) << "VMX";
  EXPECT_EQ(kept[1].ebx & (1u << 16), 0u) << "AVX-512F";
  EXPECT_EQ(kept[2].eax, 7u);
  EXPECT_EQ(kept[3].eax & (1u << 4 | 1u << 10 | 1u << 14), 0u) << "asynchronous page faults";
  EXPECT_EQ(kept[4].edx & (1u << 8), 0u) << "invariant TSC";
}

TEST(Cpuid, TopologyNamesEachVcpu) {
  const std::vector<CpuidEntry> base = {{.function = 1}, {.function = 0x80000008}};
  const std::vector<CpuidEntry> three = vcpu_cpuid(base, 3, 16);
  EXPECT_EQ(three[0].ebx >> 24, 3u);
  EXPECT_EQ(three[0].ebx >> 16 & 0xff, 16u);
  EXPECT_EQ(three[1].ecx, 15u | 4u << 12);
  EXPECT_EQ(three.back().edx, 3u);
  EXPECT_EQ(three.back().eax, 4u);
}

TEST(Probe, MissingDeviceIsAReport) {
  const ProbeReport r = probe("/dev/no-such-kvm");
  EXPECT_FALSE(r.usable);
  EXPECT_FALSE(r.device_opens);
  EXPECT_NE(r.reason.find("/dev/no-such-kvm"), std::string::npos);
}

TEST(Probe, SomethingElseIsAReport) {
  const ProbeReport r = probe("/dev/null");
  EXPECT_FALSE(r.usable);
  EXPECT_TRUE(r.device_opens);
}

class KvmTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<UniqueFd> fd = open_file("/dev/kvm", O_RDWR);
    if (!fd) GTEST_SKIP() << "no KVM here: " << fd.error().message();
    Result<System> system = System::open(std::move(*fd));
    ASSERT_TRUE(system) << system.error().to_string();
    system_ = std::make_unique<System>(std::move(*system));
    ram_ = std::move(*MappedRegion::map(kRam, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS));
  }

  struct Machine {
    Vm vm;
    std::unique_ptr<Vcpu> vcpu;
  };
  Result<Machine> build() {
    TRY_ASSIGN(Vm vm, system_->create_vm());
    TRY(vm.add_memory(0, 0, kRam, ram_.data()));
    TRY(vm.enable_split_irqchip());
    TRY_ASSIGN(Vcpu vcpu, vm.create_vcpu(0));
    TRY(vcpu.set_cpuid(*system_, 1));
    return Machine{std::move(vm), std::make_unique<Vcpu>(std::move(vcpu))};
  }
  void put(uint64_t at, uint64_t value) { std::memcpy(ram_.data() + at, &value, sizeof value); }

  static constexpr uint64_t kRam = 2u << 20;
  static constexpr BootRegisters kBoot = {.rip = 0x8000,
                                          .rsi = 7,
                                          .rsp = 0x7ff0,
                                          .cr3 = 0x1000,
                                          .gdt_base = 0x500,
                                          .gdt_limit = 31,
                                          .code_selector = 0x10,
                                          .data_selector = 0x18};
  std::unique_ptr<System> system_;
  MappedRegion ram_;
};

TEST_F(KvmTest, StateMovesToAnotherVm) {
  // 1: inc eax; mov dx, 0x5f0; out dx, eax; jmp 1b
  const unsigned char code[] = {0xff, 0xc0, 0x66, 0xba, 0xf0, 0x05, 0xef, 0xeb, 0xf7};
  std::memcpy(ram_.data() + 0x8000, code, sizeof code);
  put(0x1000, 0x2003);
  put(0x2000, 0x3003);
  put(0x3000, 0x83);
  put(0x510, 0x00af9b000000ffff);
  put(0x518, 0x00cf93000000ffff);
  Result<Machine> first = build();
  ASSERT_TRUE(first) << first.error().to_string();
  ASSERT_TRUE(system_->discover_msrs(*first->vcpu));
  EXPECT_GT(system_->msrs().size(), 10u);
  ASSERT_TRUE(first->vcpu->set_boot_registers(kBoot));
  const auto next_value = [](Vcpu& vcpu) {
    const Result<Exit> e = vcpu.run();
    EXPECT_TRUE(e) << e.error().to_string();
    EXPECT_EQ(e->kind, Exit::Kind::kIo);
    uint32_t value = 0;
    std::memcpy(&value, e->io.data, sizeof value);
    return value;
  };
  EXPECT_EQ(next_value(*first->vcpu), 1u);
  EXPECT_EQ(next_value(*first->vcpu), 2u);
  *first->vcpu->immediate_exit() = 1;
  ASSERT_EQ(first->vcpu->run()->kind, Exit::Kind::kInterrupted);
  const Result<VcpuState> state = first->vcpu->save(*system_);
  ASSERT_TRUE(state) << state.error().to_string();
  const Result<ClockState> clock = first->vm.clock();
  ASSERT_TRUE(clock);
  Result<Machine> second = build();
  ASSERT_TRUE(second);
  const Moment now = this_moment();
  const Status restored = second->vcpu->restore(*state, TimeMode::kRunsOn, *clock, now.host_tsc);
  ASSERT_TRUE(restored) << restored.error().to_string();
  ASSERT_TRUE(second->vm.set_clock(*clock, TimeMode::kRunsOn, now));
  ASSERT_TRUE(second->vcpu->notify_paused());
  EXPECT_EQ(next_value(*second->vcpu), 3u);
}

TEST_F(KvmTest, ForeignStateIsAnError) {
  Result<Machine> machine = build();
  ASSERT_TRUE(machine);
  ASSERT_TRUE(system_->discover_msrs(*machine->vcpu));
  VcpuState state = std::move(*machine->vcpu->save(*system_));
  state.sregs.resize(7);
  EXPECT_EQ(machine->vcpu->restore(state, TimeMode::kRunsOn, {}, 0).error().kind(), ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace ramet::kvm
