// Live forks seen from outside: both sides go on, neither sees the other, nothing is shared that can be written.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "vm/harness/vm_test.h"

namespace ramet::vmtest {
namespace {

using guests::kCount;
using guests::kPing;
using guests::kRead;
using guests::kSetStart;
using guests::kSetStride;
using guests::kSetValue;
using guests::kStep;
using guests::kTick;
using guests::kWrite;

class ForkTest : public VmTest {};

TEST_F(ForkTest, GuestBootsAndCounts) {
  std::unique_ptr<Vm> vm = boot("counter");
  EXPECT_EQ(must(vm->command(kStep, 3)), 3u);
  EXPECT_EQ(must(vm->command(kStep, 4)), 7u);
}

TEST_F(ForkTest, BothSidesGoOnFromTheSameInstant) {
  std::unique_ptr<Vm> parent = boot("counter");
  must(parent->command(kStep, 5));
  std::unique_ptr<Vm> child = must(parent->fork_one());
  EXPECT_EQ(must(parent->command(kStep, 1)), 6u);
  EXPECT_EQ(must(child->command(kStep, 10)), 15u);
  EXPECT_EQ(must(parent->command(kStep, 1)), 7u);
}

TEST_F(ForkTest, EveryBranchReportsThatItRunsAgain) {
  std::unique_ptr<Vm> parent = boot("counter");
  must(parent->command(kPing, 1));
  std::unique_ptr<Vm> child = must(parent->fork_one());
  EXPECT_EQ(must(child->wait_for_kind(kTick, within(kSoon))), 0u);
  EXPECT_EQ(must(parent->wait_for_kind(kTick, within(kSoon))), 0u);
}

TEST_F(ForkTest, WritesStayInTheirBranch) {
  constexpr uint32_t kFirstPage = 4096, kPages = 64;
  std::unique_ptr<Vm> parent = boot("dirty");
  const auto write = [](Vm& vm, uint32_t value) {
    must(vm.command(kSetStart, kFirstPage));
    must(vm.command(kSetValue, value));
    must(vm.command(kWrite, kPages));
  };
  const auto all_hold = [](Vm& vm, uint32_t value) {
    must(vm.command(kSetStart, kFirstPage));
    must(vm.command(kSetValue, value));
    return must(vm.command(kCount, kPages)) == kPages;
  };
  write(*parent, 1);
  std::unique_ptr<Vm> first = must(parent->fork_one());
  write(*parent, 2);
  std::unique_ptr<Vm> second = must(parent->fork_one());
  EXPECT_TRUE(all_hold(*first, 1));
  write(*first, 3);
  std::unique_ptr<Vm> grandchild = must(first->fork_one());
  write(*first, 4);
  EXPECT_TRUE(all_hold(*parent, 2));
  EXPECT_TRUE(all_hold(*second, 2));
  EXPECT_TRUE(all_hold(*first, 4));
  EXPECT_TRUE(all_hold(*grandchild, 3));
}

TEST_F(ForkTest, RamAboveTheDeviceHoleForksToo) {
  constexpr uint32_t kPageAt4GiB = 1u << 20;
  std::unique_ptr<Vm> parent = boot("dirty", BootOptions{.memory_mib = 4096});
  must(parent->command(kSetStart, kPageAt4GiB));
  must(parent->command(kSetValue, 11));
  must(parent->command(kWrite, 4));
  std::unique_ptr<Vm> child = must(parent->fork_one());
  must(child->command(kSetValue, 12));
  must(child->command(kWrite, 4));
  EXPECT_EQ(must(parent->command(kRead, kPageAt4GiB)), 11u);
  EXPECT_EQ(must(child->command(kRead, kPageAt4GiB)), 12u);
}

TEST_F(ForkTest, ZygoteExecutesNothingAndItsChildrenStartAlike) {
  std::unique_ptr<Vm> zygote = zygote_of("counter");
  std::vector<std::unique_ptr<Vm>> children = must(zygote->fork_many(2));
  EXPECT_EQ(must(children[0]->command(kStep, 2)), 2u);
  EXPECT_EQ(must(children[1]->command(kStep, 1)), 1u);
  EXPECT_EQ(children[0]->ready().generation(), 1u);
}

TEST_F(ForkTest, BusyGuestIsForkedInTheMiddle) {
  std::unique_ptr<Vm> parent = boot("hog");
  const uint32_t before = must(parent->wait_for_kind(kTick, within(kSoon)));
  std::unique_ptr<Vm> child = must(parent->fork_one());
  const uint32_t in_child = must(child->wait_for_kind(kTick, within(kSoon)));
  EXPECT_GT(in_child, before);
  EXPECT_EQ(must(child->wait_for_kind(kTick, within(kSoon))), in_child + 1);
  must(parent->wait_for_kind(kTick, within(kSoon)));
}

TEST_F(ForkTest, SeveralProcessorsFork) {
  std::unique_ptr<Vm> parent = boot("counter", BootOptions{.vcpus = 4});
  must(parent->command(kStep, 2));
  std::unique_ptr<Vm> child = must(parent->fork_one());
  EXPECT_EQ(must(child->command(kStep, 1)), 3u);
  std::unique_ptr<Vm> grandchild = must(child->fork_one());
  EXPECT_EQ(must(grandchild->command(kStep, 1)), 4u);
  EXPECT_EQ(must(parent->command(kStep, 1)), 3u);
}

class WidthTest : public ForkTest, public ::testing::WithParamInterface<size_t> {};

TEST_P(WidthTest, AllChildrenOfOneRequestRun) {
  std::unique_ptr<Vm> parent = boot("counter");
  must(parent->command(kStep, 9));
  std::vector<std::unique_ptr<Vm>> children = must(parent->fork_many(GetParam()));
  ASSERT_EQ(children.size(), GetParam());
  uint32_t steps = 0;
  for (const std::unique_ptr<Vm>& child : children) {
    steps++;
    EXPECT_EQ(must(child->command(kStep, steps)), 9 + steps);
  }
  EXPECT_EQ(must(parent->command(kStep, 1)), 10u);
}

INSTANTIATE_TEST_SUITE_P(Widths, WidthTest, ::testing::Values(1, 10, 100));

// Past sixteen forks memory leaves its chain of ancestors; several children of such a parent leave it together.
TEST_F(ForkTest, ChildrenOfEveryDepthHaveTheirOwnMemory) {
  constexpr uint32_t kFirstPage = 8192, kPages = 64;
  std::unique_ptr<Vm> parent = zygote_of("dirty", BootOptions{.memory_mib = 128});
  std::vector<std::unique_ptr<Vm>> kept;
  for (uint32_t depth = 1; depth <= 36; depth++) {
    std::vector<std::unique_ptr<Vm>> children = must(parent->fork_many(3));
    for (uint32_t i = 0; i < children.size(); i++) {
      if (depth > 1) {
        EXPECT_EQ(must(children[i]->command(kRead, kFirstPage)), 3 * (depth - 1)) << "depth " << depth;
      }
      must(children[i]->command(kSetStart, kFirstPage));
      must(children[i]->command(kSetValue, 3 * depth + i));
      must(children[i]->command(kWrite, kPages));
    }
    for (uint32_t i = 0; i < children.size(); i++)
      EXPECT_EQ(must(children[i]->command(kRead, kFirstPage + kPages - 1)), 3 * depth + i);
    kept.push_back(std::move(parent));
    parent = std::move(children[0]);
  }
  for (uint32_t depth = 1; depth < kept.size(); depth++) EXPECT_EQ(must(kept[depth]->command(kRead, kFirstPage)), 3 * depth);
}

// Request to the parent's going on.
double fork_ms(Vm& vm) {
  std::vector<PreparedChild> prepared;
  prepared.push_back(must(vm.prepare_child()));
  const ForkOutcome outcome = must(vm.fork(std::move(prepared)));
  EXPECT_TRUE(outcome.failures.empty());
  return static_cast<double>(outcome.timing.resumed_at_ns() - outcome.timing.requested_at_ns()) / 1e6;
}

double p50(std::vector<double> samples) {
  std::nth_element(samples.begin(), samples.begin() + static_cast<long>(samples.size()) / 2, samples.end());
  return samples[samples.size() / 2];
}

// Shallow and deep are measured in turn, so that what else runs on the machine hits both.
TEST_F(ForkTest, DepthCostsAtMostThreeTimesDepthOne) {
  constexpr int kDepth = 64, kForks = 41;
  constexpr uint32_t kFirstPage = 8192, kPagesPerGeneration = 256;
  std::unique_ptr<Vm> zygote = zygote_of("dirty", BootOptions{.memory_mib = 256});
  std::vector<std::unique_ptr<Vm>> lineage;
  lineage.push_back(must(zygote->fork_one()));
  must(lineage.back()->command(kSetStart, kFirstPage));
  must(lineage.back()->command(kWrite, kPagesPerGeneration));
  while (lineage.size() < kDepth) {
    lineage.push_back(must(lineage.back()->fork_one()));
    must(lineage.back()->command(kSetValue, static_cast<uint32_t>(lineage.size())));
    must(lineage.back()->command(kWrite, kPagesPerGeneration));
  }
  // Measured in turn, so that a slow moment meets both; and again when another program took the processors meanwhile.
  double ratio = 0;
  for (int round = 0; round < 3; round++) {
    std::vector<double> shallow, deep;
    for (int i = 0; i < kForks; i++) {
      shallow.push_back(fork_ms(*lineage.front()));
      deep.push_back(fork_ms(*lineage.back()));
    }
    ratio = p50(deep) / p50(shallow);
    std::printf("fork p50: depth 1 %.2f ms, depth %d %.2f ms, ratio %.2f\n", p50(shallow), kDepth, p50(deep), ratio);
    if (ratio <= 3) break;
  }
  if (!kSanitized) {
    EXPECT_LE(ratio, 3);
  }
  for (size_t i = 1; i < lineage.size(); i++) EXPECT_EQ(must(lineage[i]->command(kRead, kFirstPage)), i + 1);
}

TEST_F(ForkTest, DeathOfTheFirstVmmLeavesItsChildren) {
  std::unique_ptr<Vm> first = boot("counter");
  must(first->command(kStep, 2));
  std::unique_ptr<Vm> child = must(first->fork_one());
  std::unique_ptr<Vm> grandchild = must(child->fork_one());
  first->kill();
  EXPECT_EQ(must(child->command(kStep, 1)), 3u);
  child->kill();
  EXPECT_EQ(must(grandchild->command(kStep, 2)), 4u);
  std::unique_ptr<Vm> late = must(grandchild->fork_one());
  EXPECT_EQ(must(late->command(kStep, 1)), 5u);
}

TEST_F(ForkTest, DeathOfAChildLeavesItsParent) {
  std::unique_ptr<Vm> parent = boot("counter");
  std::unique_ptr<Vm> child = must(parent->fork_one());
  child->kill();
  EXPECT_EQ(must(parent->command(kStep, 1)), 1u);
  const Deadline deadline = deadline_after(Milliseconds(5000));
  while (!children_of(parent->pid()).empty() && MonotonicClock::now() < deadline) ::usleep(10'000);
  EXPECT_TRUE(children_of(parent->pid()).empty()) << "the dead child is not reaped";
}

// Every descriptor of the child must be its own, or one through which nobody can write: standard streams, devices, read-only
// files.
void expect_nothing_writable_shared(pid_t a, pid_t b) {
  for (const Descriptor& in_a : descriptors_of(a)) {
    for (const Descriptor& in_b : descriptors_of(b)) {
      if (in_b.fd <= 2 || in_b.character_device) continue;
      const bool same =
          in_b.anonymous ? same_open_file(a, in_a.fd, b, in_b.fd) : in_a.device == in_b.device && in_a.inode == in_b.inode;
      if (!same) continue;
      EXPECT_FALSE(in_b.anonymous || in_b.writable || in_a.writable)
          << "fd " << in_b.fd << " (" << in_b.target << ") of " << b << " is fd " << in_a.fd << " of " << a;
    }
  }
}

TEST_F(ForkTest, NoWritableDescriptorIsShared) {
  std::unique_ptr<Vm> zygote = zygote_of("counter");
  std::unique_ptr<Vm> parent = must(zygote->fork_one());
  std::vector<std::unique_ptr<Vm>> children = must(parent->fork_many(3));
  std::vector<pid_t> family = {zygote->pid(), parent->pid()};
  for (const std::unique_ptr<Vm>& child : children) family.push_back(child->pid());
  for (pid_t a : family)
    for (pid_t b : family)
      if (a != b) expect_nothing_writable_shared(a, b);
}

TEST_F(ForkTest, NoFrozenOverlayCanBeWritten) {
  BootOptions options{.disks = {Disk{.size_bytes = 16 << 20}}};
  std::unique_ptr<Vm> parent = boot("blk", options);
  must(parent->command(kStep, 2));
  std::vector<std::unique_ptr<Vm>> children = must(parent->fork_many(2));
  must(children[0]->command(kStep, 1));
  std::unique_ptr<Vm> grandchild = must(children[0]->fork_one());
  must(parent->command(kStep, 1));
  const std::vector<pid_t> family = {parent->pid(), children[0]->pid(), children[1]->pid(), grandchild->pid()};
  for (pid_t a : family)
    for (pid_t b : family)
      if (a != b) expect_nothing_writable_shared(a, b);
}

// The code would be a file mapping else, whose page tables fork(2) does not copy: each child faulted it in anew.
// The monitor of a sanitizer build is not linked for it.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(ForkTest, ProgramTextLiesInHugePages) {
  if (::access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0) GTEST_SKIP() << "this kernel has no huge pages";
  std::unique_ptr<Vm> parent = boot("counter");
  std::unique_ptr<Vm> child = must(parent->fork_one());
  std::ifstream smaps("/proc/" + std::to_string(child->pid()) + "/smaps");
  bool code = false;
  uint64_t huge_kib = 0;
  for (std::string line; std::getline(smaps, line);) {
    std::istringstream words(line);
    std::string first, second;
    words >> first >> second;
    if (first.find('-') != std::string::npos && first.back() != ':') {  // the head of a mapping
      EXPECT_NE(second.substr(1, 2), "wx") << line;
      code = second[2] == 'x' && line.find('[') == std::string::npos;
      EXPECT_FALSE(code && line.find("ramet-vmm") != std::string::npos) << "code is mapped from the file: " << line;
    } else if (code && first == "AnonHugePages:") {
      huge_kib += std::stoull(second);
    }
  }
  EXPECT_GE(huge_kib, 2048u);
}
#endif

TEST_F(ForkTest, ParentKeepsAsManyDescriptorsAsBefore) {
  std::unique_ptr<Vm> parent = boot("counter");
  must(parent->fork_one());
  const size_t before = descriptors_of(parent->pid()).size();
  for (int i = 0; i < 5; i++) must(parent->fork_one());
  EXPECT_EQ(descriptors_of(parent->pid()).size(), before);
}

TEST_F(ForkTest, PausedMachineStandsStillAndGoesOn) {
  std::unique_ptr<Vm> vm = boot("hog");
  must(vm->wait_for_kind(kTick, within(kSoon)));
  must(vm->control().pause(vm->patience()));
  while (vm->next_event(within(Milliseconds(200)))) {
  }
  const Result<vmm::Event> event = vm->next_event(within(Milliseconds(500)));
  ASSERT_FALSE(event) << "the paused machine runs";
  EXPECT_EQ(event.error().kind(), ErrorKind::kTimeout);
  must(vm->control().resume(vm->patience()));
  must(vm->wait_for_kind(kTick, within(kSoon)));
}

}  // namespace
}  // namespace ramet::vmtest
