// Frozen children: a machine at one instant that can be started later, while the machine itself goes on.
#include <signal.h>

#include <fstream>
#include <sstream>

#include <poll.h>

#include "base/file.h"
#include "vm/harness/vm_test.h"

namespace ramet::vmtest {
namespace {

using guests::kCount;
using guests::kRead;
using guests::kSetStart;
using guests::kSetStride;
using guests::kSetValue;
using guests::kStep;
using guests::kTick;
using guests::kWrite;

class FrozenTest : public VmTest {
 protected:
  static std::unique_ptr<Vm> start(const FrozenVm& frozen) {
    const std::unique_ptr<Vm> zygote = must(Vm::zygote(must(frozen.image())));
    return must(zygote->fork_one());
  }
};

TEST_F(FrozenTest, StartsWhereTheMachineWasAndTheMachineGoesOn) {
  std::unique_ptr<Vm> vm = boot("counter");
  must(vm->command(kStep, 5));
  const FrozenVm frozen = must(vm->freeze());
  EXPECT_EQ(must(vm->command(kStep, 1)), 6u);
  std::unique_ptr<Vm> first = start(frozen);
  EXPECT_EQ(must(first->command(kStep, 10)), 15u);
  std::unique_ptr<Vm> second = start(frozen);
  EXPECT_EQ(must(second->command(kStep, 2)), 7u);
  EXPECT_EQ(must(vm->command(kStep, 1)), 7u);
  EXPECT_EQ(must(first->command(kStep, 1)), 16u);
}

TEST_F(FrozenTest, SeveralProcessorsAreSaved) {
  std::unique_ptr<Vm> vm = boot("counter", BootOptions{.vcpus = 4});
  must(vm->command(kStep, 2));
  const FrozenVm frozen = must(vm->freeze());
  std::unique_ptr<Vm> later = start(frozen);
  EXPECT_EQ(must(later->command(kStep, 1)), 3u);
}

TEST_F(FrozenTest, WhatTheMachineWritesLaterIsNotInIt) {
  constexpr uint32_t kFirstPage = 4096, kPages = 64;
  std::unique_ptr<Vm> zygote = zygote_of("dirty");
  std::unique_ptr<Vm> vm = must(zygote->fork_one());
  must(vm->command(kSetStart, kFirstPage));
  must(vm->command(kSetValue, 1));
  must(vm->command(kWrite, kPages));
  const FrozenVm frozen = must(vm->freeze());
  must(vm->command(kSetValue, 2));
  must(vm->command(kWrite, kPages));
  std::unique_ptr<Vm> later = start(frozen);
  must(later->command(kSetStart, kFirstPage));
  must(later->command(kSetValue, 1));
  EXPECT_EQ(must(later->command(kCount, kPages)), kPages);
  EXPECT_EQ(must(vm->command(kCount, kPages)), kPages);
  must(vm->command(kSetValue, 1));
  EXPECT_EQ(must(vm->command(kCount, kPages)), 0u);
}

// As a pause does it: the machine does not go on, and may if the pause fails.
TEST_F(FrozenTest, OfAMachineThatStandsStillItStaysSo) {
  std::unique_ptr<Vm> vm = boot("hog");
  must(vm->wait_for_kind(kTick, within(kSoon)));
  must(vm->control().pause(vm->patience()));
  const FrozenVm frozen = must(vm->freeze());
  while (vm->next_event(within(Milliseconds(200)))) {
  }
  EXPECT_FALSE(vm->next_event(within(Milliseconds(300)))) << "the paused machine runs";
  std::unique_ptr<Vm> later = start(frozen);
  must(later->wait_for_kind(kTick, within(kSoon)));
  must(vm->control().resume(vm->patience()));
  must(vm->wait_for_kind(kTick, within(kSoon)));
}

std::string state_of(pid_t pid) {
  const Result<std::string> stat = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  return stat ? stat->substr(stat->rfind(')') + 2, 1) : "gone";
}

TEST_F(FrozenTest, NeverRunsAndHasNoVm) {
  std::unique_ptr<Vm> vm = boot("hog");
  must(vm->wait_for_kind(kTick, within(kSoon)));
  const FrozenVm frozen = must(vm->freeze());
  for (const Descriptor& d : descriptors_of(frozen.pid)) EXPECT_EQ(d.target.find("kvm-v"), std::string::npos) << d.target;
  must(vm->wait_for_kind(kTick, within(kSoon)));
  EXPECT_EQ(state_of(frozen.pid), "S");
  const auto used = [&] {
    std::ifstream stat("/proc/" + std::to_string(frozen.pid) + "/schedstat");
    uint64_t ns = 0;
    stat >> ns;
    return ns;
  };
  const uint64_t before = used();
  must(vm->wait_for_kind(kTick, within(kSoon)));
  must(vm->wait_for_kind(kTick, within(kSoon)));
  EXPECT_EQ(used(), before);
}

TEST_F(FrozenTest, EndsWhenNobodyReadsIt) {
  std::unique_ptr<Vm> vm = boot("counter");
  FrozenVm frozen = must(vm->freeze());
  frozen.bootstrap.reset();
  EXPECT_TRUE(wait_for(frozen.pidfd.get(), POLLIN, within(kSoon)));
  EXPECT_EQ(must(vm->command(kStep, 1)), 1u);
}

// It belongs to nobody who could speak to it: only its memory is of use.
TEST_F(FrozenTest, CannotBeCommitted) {
  std::unique_ptr<Vm> vm = boot("counter");
  FrozenVm frozen = must(vm->freeze());
  must(frozen.bootstrap->commit(vm->patience()));
  EXPECT_TRUE(wait_for(frozen.pidfd.get(), POLLIN, within(kSoon)));
}

TEST_F(FrozenTest, OutlivesTheMachine) {
  std::unique_ptr<Vm> vm = boot("counter");
  must(vm->command(kStep, 3));
  const FrozenVm frozen = must(vm->freeze());
  vm->kill();
  std::unique_ptr<Vm> later = start(frozen);
  EXPECT_EQ(must(later->command(kStep, 1)), 4u);
}

TEST_F(FrozenTest, OfWhatWasStartedFromOne) {
  std::unique_ptr<Vm> vm = boot("counter");
  for (uint32_t generation = 0; generation < 4; generation++) {
    EXPECT_EQ(must(vm->command(kStep, 1)), generation + 1);
    const FrozenVm frozen = must(vm->freeze());
    vm = start(frozen);
  }
  EXPECT_EQ(must(vm->command(kStep, 1)), 5u);
}

TEST_F(FrozenTest, AZeroMapThatFitsNoMemoryIsRefused) {
  std::unique_ptr<Vm> vm = boot("counter");
  Image image = must(must(vm->freeze()).image());
  image.zero_map.push_back('\0');
  const Result<std::unique_ptr<Vm>> zygote = Vm::zygote(image);
  ASSERT_FALSE(zygote);
  EXPECT_EQ(zygote.error().kind(), ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace ramet::vmtest
