// Kernels that are none, guests that misbehave: a clear error or a dead sandbox, never a hang and never more than their own VM.
#include <fstream>

#include "base/file.h"
#include "vm/harness/vm_test.h"

namespace ramet::vmtest {
namespace {

using guests::kGo;
using guests::kHangHalt;
using guests::kHangSpin;
using guests::kTick;

class HostileTest : public VmTest {
 protected:
  // Boots what `bytes` say is a kernel; the error.
  static Error boot_error(const std::string& bytes) {
    TempDir dir;
    const std::string path = dir.path() + "/kernel";
    std::ofstream(path, std::ios::binary) << bytes;
    Result<std::unique_ptr<Vm>> vm = Vm::boot(BootOptions{.kernel = path});
    return vm ? Error(ErrorKind::kInternal, "it booted") : vm.error();
  }
  static std::string good_kernel() { return must(read_file(guest_path("counter"))); }
};

bool is_refusal(const Error& error) { return error.kind() == ErrorKind::kInvalid || error.kind() == ErrorKind::kCorrupt; }

TEST_F(HostileTest, EmptyKernelIsRefused) { EXPECT_TRUE(is_refusal(boot_error(""))) << boot_error("").to_string(); }

TEST_F(HostileTest, GarbageKernelIsRefused) {
  const Error error = boot_error(std::string(100'000, 'x'));
  EXPECT_TRUE(is_refusal(error)) << error.to_string();
}

class TruncatedKernelTest : public HostileTest, public ::testing::WithParamInterface<size_t> {};

TEST_P(TruncatedKernelTest, IsRefused) {
  const Error error = boot_error(good_kernel().substr(0, GetParam()));
  EXPECT_TRUE(is_refusal(error)) << error.to_string();
}

// Inside the ELF header, inside the program headers, inside the segment.
INSTANTIATE_TEST_SUITE_P(Lengths, TruncatedKernelTest, ::testing::Values(1, 20, 64, 100, 4100));

TEST_F(HostileTest, SegmentOutsideRamIsRefused) {
  std::string kernel = good_kernel();
  constexpr size_t kFirstPhysicalAddress = 64 + 24;  // p_paddr of the first program header
  const uint64_t far_away = 1ull << 40;
  kernel.replace(kFirstPhysicalAddress, sizeof far_away, reinterpret_cast<const char*>(&far_away), sizeof far_away);
  const Error error = boot_error(kernel);
  EXPECT_TRUE(is_refusal(error)) << error.to_string();
}

TEST_F(HostileTest, TripleFaultEndsTheMachineWithItsReason) {
  std::unique_ptr<Vm> vm = boot("panic");
  const uint32_t go = guests::word(kGo, 0);
  must(vm->push(std::span(&go, 1)));
  EXPECT_EQ(must(vm->wait_ended(within(kSoon))).reason(), "triple_fault");
  EXPECT_TRUE(vm->wait_gone(within(kSoon)));
}

TEST_F(HostileTest, TripleFaultOfAChildLeavesItsParent) {
  std::unique_ptr<Vm> parent = boot("panic");
  std::unique_ptr<Vm> child = must(parent->fork_one());
  const uint32_t go = guests::word(kGo, 0);
  must(child->push(std::span(&go, 1)));
  EXPECT_TRUE(child->wait_gone(within(kSoon)));
  must(parent->control().ping(parent->patience()));
}

class HangTest : public HostileTest, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(HangTest, HangingGuestIsStillForkedAndEnded) {
  std::unique_ptr<Vm> vm = boot("hang");
  const uint32_t go = guests::word(kGo, GetParam());
  must(vm->push(std::span(&go, 1)));
  const Result<uint32_t> word = vm->next_word(within(Milliseconds(300)));
  ASSERT_FALSE(word) << "the hanging guest says " << *word;
  EXPECT_EQ(word.error().kind(), ErrorKind::kTimeout);
  std::unique_ptr<Vm> child = must(vm->fork_one());
  static_cast<void>(child->control().stop(child->patience()));  // the answer may be lost with the process
  EXPECT_TRUE(child->wait_gone(within(kSoon)));
  EXPECT_TRUE(vm->alive());
}

INSTANTIATE_TEST_SUITE_P(Ways, HangTest, ::testing::Values(kHangHalt, kHangSpin));

TEST_F(HostileTest, ConsoleFloodIsBounded) {
  constexpr uint64_t kLimitBytes = 2 << 20, kFloodBytes = kLimitBytes + (128 << 10), kBytesPerTick = 4096;
  std::unique_ptr<Vm> vm = boot("flood");
  const uint32_t go = guests::word(kGo, 0);
  must(vm->push(std::span(&go, 1)));
  uint32_t tick = 0;
  while (tick < kFloodBytes / kBytesPerTick) tick = must(vm->wait_for_kind(kTick, within(kSoon)));
  EXPECT_LE(vm->console_file_bytes(), kLimitBytes);
  EXPECT_GT(vm->console_file_bytes(), kLimitBytes / 4);
  must(vm->fork_one());
}

}  // namespace
}  // namespace ramet::vmtest
