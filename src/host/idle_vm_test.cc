// Pause when idle, and the time to live of what is paused, over the real monitor with tiny guests (no agent).
#include <gtest/gtest.h>

#include <thread>

#include "host/testing/host_test.h"

namespace ramet::host {
namespace {

class IdleVmTest : public testing::HostTest {
 protected:
  void SetUp() override {
    HostTest::SetUp();
    if (IsSkipped()) return;
    options_ = testing::tiny_options(root_);
    options_->janitor_interval = Milliseconds(50);
    reopen();
    ASSERT_TRUE(testing::upload_tiny(*host_, "tiny", "blk", std::string(1 << 20, '\0')));
  }
  void reopen() {
    host_.reset();
    open();
  }
  SandboxInfo create_idle(uint64_t idle_seconds, uint64_t ttl_seconds = 600) {
    CreateOptions o;
    o.template_name = "tiny";
    o.idle_seconds = idle_seconds;
    o.ttl_seconds = ttl_seconds;
    const Result<SandboxInfo> s = host_->create(o);
    EXPECT_TRUE(s) << (s ? "" : s.error().to_string());
    return s ? *s : SandboxInfo{};
  }
  Status snapshot(const std::string& id) {
    SnapshotOptions o;
    o.strictness = ForkStrictness::kLoose;
    TRY_ASSIGN(const SnapshotResult taken, host_->snapshot(id, o));
    return host_->remove_snapshot(taken.info.id);
  }
  Status patch_ttl(const std::string& id, uint64_t seconds) {
    PatchOptions o;
    o.ttl_seconds = seconds;
    TRY(host_->patch(id, o));
    return {};
  }
  bool pauses(const std::string& id) {
    const Deadline until = deadline_after(Milliseconds(60'000));
    while (state(id) != SandboxState::kPaused && MonotonicClock::now() < until) std::this_thread::sleep_for(Milliseconds(20));
    return state(id) == SandboxState::kPaused;
  }
  SandboxState state(const std::string& id) { return host_->get(id)->state; }
};

TEST_F(IdleVmTest, OneThatNobodyUsesIsPausedByItself) {
  const SandboxInfo a = create_idle(1), never = create_idle(0);
  EXPECT_EQ(host_->get(a.id)->idle_seconds, 1u);
  EXPECT_TRUE(pauses(a.id));
  reopen();
  EXPECT_EQ(state(a.id), SandboxState::kPaused);
  EXPECT_EQ(host_->get(a.id)->idle_seconds, 1u);
  ASSERT_TRUE(host_->resume(a.id));
  EXPECT_TRUE(pauses(a.id)) << "each time again";
  ASSERT_TRUE(host_->resume(a.id));
  reopen();
  EXPECT_TRUE(pauses(a.id)) << "also one that was adopted";
  EXPECT_EQ(state(never.id), SandboxState::kRunning);
  host_.reset();
  EXPECT_EQ(step(never.id), 1u);
  open();
}

TEST_F(IdleVmTest, AUseKeepsItAwakeAndAPatchSaysOtherwise) {
  const SandboxInfo a = create_idle(2);
  const Deadline until = deadline_after(Milliseconds(5000));
  while (MonotonicClock::now() < until) {
    ASSERT_TRUE(snapshot(a.id));
    ASSERT_EQ(state(a.id), SandboxState::kRunning);
    std::this_thread::sleep_for(Milliseconds(100));
  }
  EXPECT_TRUE(pauses(a.id));
  PatchOptions never;
  never.idle_seconds = 0;
  EXPECT_EQ(host_->patch(a.id, never)->idle_seconds, 0u);
  ASSERT_TRUE(host_->resume(a.id));
  std::this_thread::sleep_for(Milliseconds(3000));
  EXPECT_EQ(state(a.id), SandboxState::kRunning);
}

TEST_F(IdleVmTest, ItsForksPauseAsItDoes) {
  const SandboxInfo a = create_idle(1);
  const ForkResult running = fork(a.id);
  EXPECT_EQ(running.children[0].idle_seconds, 1u);
  EXPECT_TRUE(pauses(a.id));
  const ForkResult of_paused = fork(a.id);
  EXPECT_EQ(of_paused.children[0].idle_seconds, 1u);
  EXPECT_TRUE(pauses(of_paused.children[0].id));
  EXPECT_TRUE(pauses(running.children[0].id));
}

// Each request falls another few milliseconds before, into or after the moment at which the sandbox pauses.
TEST_F(IdleVmTest, NoRequestIsLostWhileItPauses) {
  const SandboxInfo a = create_idle(1);
  for (int round = 0; round < 6; round++) {
    const bool late = round % 3 == 0;
    while (late && state(a.id) == SandboxState::kRunning) std::this_thread::sleep_for(Milliseconds(1));
    if (!late) std::this_thread::sleep_for(Milliseconds(920 + 40 * round));
    const Status kept = snapshot(a.id);
    ASSERT_TRUE(kept) << "round " << round << ": " << kept.error().to_string();
    EXPECT_EQ(state(a.id), SandboxState::kRunning);
  }
  while (state(a.id) == SandboxState::kRunning) std::this_thread::sleep_for(Milliseconds(1));
  EXPECT_EQ(fork(a.id).children.size(), 1u);
  ASSERT_TRUE(host_->resume(a.id));
  while (state(a.id) == SandboxState::kRunning) std::this_thread::sleep_for(Milliseconds(1));
  const Status removed = host_->remove(a.id);
  EXPECT_TRUE(removed) << removed.error().to_string();
}

TEST_F(IdleVmTest, OneThatCannotBePausedGoesOn) {
  options_->disk_reserve_mib = uint64_t{1} << 40;  // no disk has as much
  const SandboxInfo a = create();
  reopen();
  PatchOptions soon;
  soon.idle_seconds = 1;
  ASSERT_TRUE(host_->patch(a.id, soon));
  std::this_thread::sleep_for(Milliseconds(3000));
  EXPECT_TRUE(eventually([&] { return state(a.id) == SandboxState::kRunning; }));
  options_->disk_reserve_mib = 16;
  reopen();
  EXPECT_TRUE(pauses(a.id));
}

TEST_F(IdleVmTest, ATimeToLiveGivenWhilePausedCountsFromTheResume) {
  const SandboxInfo soon = create_idle(0), never = create_idle(0, 300);
  for (const SandboxInfo& one : {soon, never}) ASSERT_TRUE(host_->pause(one.id));
  ASSERT_TRUE(patch_ttl(soon.id, 2));
  ASSERT_TRUE(patch_ttl(never.id, 0));
  EXPECT_FALSE(host_->get(soon.id)->expires_at_ns);
  reopen();
  std::this_thread::sleep_for(Milliseconds(2500));
  EXPECT_EQ(state(soon.id), SandboxState::kPaused) << "its time stands still";
  ASSERT_TRUE(host_->resume(never.id));
  EXPECT_FALSE(host_->get(never.id)->expires_at_ns);
  const Result<SandboxInfo> resumed = host_->resume(soon.id);
  ASSERT_TRUE(resumed);
  ASSERT_TRUE(resumed->expires_at_ns);
  EXPECT_LE(*resumed->expires_at_ns, wall_ns() + 2'000'000'000);
  EXPECT_TRUE(eventually([&] { return !host_->get(soon.id); }));
  ASSERT_TRUE(patch_ttl(never.id, 300));
  ASSERT_TRUE(host_->pause(never.id));
  EXPECT_TRUE(host_->resume(never.id)->expires_at_ns) << "what was patched before does not count again";
}

}  // namespace
}  // namespace ramet::host
