// Create, fork, kill, again and again: nothing may stay. RAMET_SOAK_ROUNDS sets the rounds (make soak: 10,000).
#include <cstdio>
#include <cstdlib>

#include "vm/harness/vm_test.h"

namespace ramet::vmtest {
namespace {

using guests::kStep;

constexpr int kRounds = 1000;

int rounds() {
  const char* asked = std::getenv("RAMET_SOAK_ROUNDS");
  return asked != nullptr ? std::atoi(asked) : kRounds;
}

class LeakTest : public VmTest {};

TEST_F(LeakTest, CreateForkKillLeavesNothing) {
  constexpr uint64_t kMayGrowBytes = 4 << 20;
  std::unique_ptr<Vm> zygote = zygote_of("counter");
  must(zygote->fork_one());
  const size_t descriptors = descriptors_of(zygote->pid()).size();
  const uint64_t rss = smaps_bytes(zygote->pid(), "Rss");
  for (int i = 0; i < rounds(); i++) {
    std::unique_ptr<Vm> created = must(zygote->fork_one());
    std::unique_ptr<Vm> forked = must(created->fork_one());
    created.reset();
    ASSERT_EQ(must(forked->command(kStep, 1)), 1u) << "round " << i;
  }
  EXPECT_EQ(descriptors_of(zygote->pid()).size(), descriptors);
  EXPECT_TRUE(children_of(zygote->pid()).empty());
  if (!kSanitized) {
    EXPECT_LE(smaps_bytes(zygote->pid(), "Rss"), rss + kMayGrowBytes);
  }
  std::printf("%d rounds\n", rounds());
}

}  // namespace
}  // namespace ramet::vmtest
