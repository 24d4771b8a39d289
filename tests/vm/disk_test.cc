// RAM and disk of every branch are of one instant, with a guest that drives virtio-blk itself.
#include "vm/harness/vm_test.h"

namespace ramet::vmtest {
namespace {

using guests::kCount;
using guests::kGo;
using guests::kRead;
using guests::kStep;
using guests::kTick;

constexpr uint64_t kDiskBytes = 16 << 20;
constexpr uint32_t kRoundsPerTick = 8;

class DiskTest : public VmTest {
 protected:
  static BootOptions with_disk() { return BootOptions{.disks = {Disk{.size_bytes = kDiskBytes}}}; }
};

TEST_F(DiskTest, CounterReachesTheDisk) {
  std::unique_ptr<Vm> vm = boot("blk", with_disk());
  EXPECT_EQ(must(vm->command(kStep, 5)), 5u);
  EXPECT_EQ(must(vm->command(kRead, 0)), 5u);
}

TEST_F(DiskTest, WritesStayInTheirBranchInBothDirections) {
  std::unique_ptr<Vm> parent = boot("blk", with_disk());
  must(parent->command(kStep, 3));
  std::unique_ptr<Vm> child = must(parent->fork_one());
  must(parent->command(kStep, 2));
  must(child->command(kStep, 4));
  std::unique_ptr<Vm> grandchild = must(child->fork_one());
  must(child->command(kStep, 1));
  EXPECT_EQ(must(parent->command(kRead, 0)), 5u);
  EXPECT_EQ(must(child->command(kRead, 0)), 8u);
  EXPECT_EQ(must(grandchild->command(kRead, 0)), 7u);
}

// The guest reads the block before each round and refuses to go on when it is not the counter of its RAM.
TEST_F(DiskTest, RamAndDiskAgreeInEveryChildOfAHundredForks) {
  constexpr int kForks = 100;
  constexpr uint32_t kWithoutEnd = guests::kValueMask;
  std::unique_ptr<Vm> parent = boot("blk", with_disk());
  const uint32_t step = guests::word(kStep, kWithoutEnd);
  must(parent->push(std::span(&step, 1)));
  uint32_t last = must(parent->wait_for_kind(kTick, within(kSoon)));
  for (int i = 0; i < kForks; i++) {
    std::unique_ptr<Vm> child = must(parent->fork_one());
    const uint32_t first = must(child->wait_for_kind(kTick, within(kSoon)));
    EXPECT_EQ(must(child->wait_for_kind(kTick, within(kSoon))), first + kRoundsPerTick);
    const uint32_t in_parent = must(parent->wait_for_kind(kTick, within(kSoon)));
    EXPECT_GT(in_parent, last);
    last = in_parent;
  }
}

TEST_F(DiskTest, AgreementHoldsForAForkOfAForkTwentyDeep) {
  constexpr int kDepth = 20;
  std::vector<std::unique_ptr<Vm>> lineage;
  lineage.push_back(boot("blk", with_disk()));
  for (uint32_t depth = 1; depth < kDepth; depth++) {
    must(lineage.back()->command(kStep, 1));
    lineage.push_back(must(lineage.back()->fork_one()));
  }
  uint32_t depth = 0;
  for (const std::unique_ptr<Vm>& vm : lineage) {
    depth++;
    const uint32_t expected = depth < kDepth ? depth : kDepth - 1;
    EXPECT_EQ(must(vm->command(kCount, 0)), expected);
    EXPECT_EQ(must(vm->command(kRead, 0)), expected);
  }
}

TEST_F(DiskTest, InvalidQueuesHarmNobody) {
  std::unique_ptr<Vm> vm = boot("badqueue", with_disk());
  vm->set_patience(std::chrono::seconds(60));
  const uint32_t attacks = must(vm->command(kGo, 0));
  EXPECT_GT(attacks, 100u);
  std::printf("%u attacks\n", attacks);
  std::unique_ptr<Vm> child = must(vm->fork_one());
  EXPECT_TRUE(child->alive());
}

}  // namespace
}  // namespace ramet::vmtest
