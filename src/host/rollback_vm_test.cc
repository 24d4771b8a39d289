// Rollback in place over the real monitor, with the guest `blk` (no agent): it keeps one counter in RAM and in a flushed block
// of its disk, and refuses to go on when they differ. That nothing is lost when the daemon is killed on the way:
// host_vm_test.cc.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "host/testing/host_test.h"

namespace ramet::host {
namespace {

class RollbackVmTest : public testing::HostTest {
 protected:
  void SetUp() override {
    HostTest::SetUp();
    if (IsSkipped()) return;
    options_ = testing::tiny_options(root_);
    options_->idle_zygote = Milliseconds(60'000);
    host_.reset();
    open();
    ASSERT_TRUE(testing::upload_tiny(*host_, "tiny", "blk", std::string(1 << 20, '\0')));
  }
  void roll_back(const std::string& id, const std::string& snapshot) {
    const Result<SandboxInfo> back = host_->rollback(id, snapshot);
    ASSERT_TRUE(back) << back.error().to_string();
    EXPECT_EQ(back->id, id);
    EXPECT_EQ(back->state, SandboxState::kRunning);
  }
  size_t put_aside() {
    size_t found = 0;
    for (const MachineRow& row : Registry::open(root_ + "/state/ramet.db").value()->machines().value())
      found += row.role == MachineRole::kAside;
    return found;
  }
};

TEST_F(RollbackVmTest, ARunningSandboxIsWhereTheSnapshotWasTaken) {
  CreateOptions o;
  o.template_name = "tiny";
  o.labels = {{"name", "work"}};
  o.idle_seconds = 600;
  const SandboxInfo a = host_->create(o).value();
  EXPECT_EQ(count(a.id), 1u);
  const SnapshotInfo warm = snapshot(a.id, "warm").info;
  EXPECT_EQ(count(a.id), 2u);
  const pid_t before = pid_of(a.id);
  roll_back(a.id, "warm");
  const SandboxInfo back = host_->get(a.id).value();
  EXPECT_EQ(back.labels, o.labels);
  EXPECT_EQ(back.idle_seconds, 600u);
  EXPECT_EQ(back.expires_at_ns, a.expires_at_ns);
  EXPECT_EQ(back.created_at_ns, a.created_at_ns);
  EXPECT_FALSE(testing::monitors_of(root_).contains(before));
  EXPECT_EQ(put_aside(), 0u);
  EXPECT_EQ(count(a.id), 2u);
  EXPECT_EQ(count(a.id), 3u);
  roll_back(a.id, warm.id);
  EXPECT_EQ(fork(a.id).children.size(), 1u);
  EXPECT_EQ(count(a.id), 2u);
}

TEST_F(RollbackVmTest, APausedSandboxRunsWhereTheSnapshotWasTaken) {
  const SandboxInfo a = create();
  EXPECT_EQ(count(a.id), 1u);
  const SnapshotInfo warm = snapshot(a.id, "warm").info;
  EXPECT_EQ(count(a.id), 2u);
  ASSERT_TRUE(host_->pause(a.id));
  const std::string saved = Registry::open(root_ + "/state/ramet.db").value()->machine(a.id)->saved;
  roll_back(a.id, "warm");
  EXPECT_TRUE(host_->get(a.id)->expires_at_ns);
  EXPECT_EQ(count(a.id), 2u);
  EXPECT_TRUE(eventually([&] { return !testing::names_in(root_ + "/state/store/snapshots").contains(saved + ".snapshot"); }))
      << "what it was paused in is nobody's any more";
}

TEST_F(RollbackVmTest, OneThatFailsLeavesItAsItWas) {
  const SandboxInfo running = create(), paused = create();
  EXPECT_EQ(count(running.id), 1u);
  snapshot(running.id, "warm");
  EXPECT_EQ(count(running.id), 2u);
  ASSERT_TRUE(host_->pause(paused.id));
  roll_back(create().id, "warm");  // its zygote is up
  const std::string overlays = root_ + "/state/overlays";
  std::filesystem::rename(overlays, overlays + ".away");  // nothing can be born
  for (int round = 0; round < 2; round++) {
    EXPECT_FALSE(host_->rollback(running.id, "warm"));
    EXPECT_FALSE(host_->rollback(paused.id, "warm"));
    EXPECT_EQ(host_->get(running.id)->state, SandboxState::kRunning);
    EXPECT_EQ(host_->get(paused.id)->state, SandboxState::kPaused);
    EXPECT_EQ(put_aside(), 0u);
  }
  std::filesystem::rename(overlays + ".away", overlays);
  EXPECT_EQ(count(running.id), 3u);
  ASSERT_TRUE(host_->resume(paused.id));
  EXPECT_EQ(count(paused.id), 1u);
  roll_back(running.id, "warm");
  EXPECT_EQ(count(running.id), 2u);
}

TEST_F(RollbackVmTest, OnlyToSnapshotsOfItsSize) {
  const SandboxInfo a = create();
  const SnapshotInfo of_a = snapshot(a.id, "small").info;
  CreateOptions o;
  o.template_name = "tiny";
  o.memory_mib = 128;
  const SandboxInfo large = host_->create(o).value();
  const Result<SandboxInfo> refused = host_->rollback(large.id, "small");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::kInvalid);
  EXPECT_NE(refused.error().message().find("64 MiB"), std::string::npos) << refused.error().message();
  EXPECT_EQ(host_->rollback(a.id, "nothing").error().kind(), ErrorKind::kNotFound);
  EXPECT_EQ(host_->rollback("sb-none", "small").error().kind(), ErrorKind::kNotFound);
  EXPECT_EQ(count(large.id), 1u);
  const SandboxInfo other = create();
  EXPECT_EQ(count(other.id), 1u);
  roll_back(other.id, of_a.id);  // another sandbox's snapshot
  EXPECT_EQ(count(other.id), 1u);
}

TEST_F(RollbackVmTest, WhoComesMeanwhileWaits) {
  const SandboxInfo a = create();
  snapshot(a.id, "warm");
  std::atomic<bool> done{false};
  std::thread forks([&] {
    while (!done)
      for (const SandboxInfo& child : fork(a.id).children) EXPECT_TRUE(host_->remove(child.id));
  });
  for (int i = 0; i < 3; i++) roll_back(a.id, "warm");
  done = true;
  forks.join();
  EXPECT_TRUE(eventually([&] { return testing::monitors_of(root_).size() == 3; })) << "two zygotes and the sandbox";
  EXPECT_EQ(count(a.id), 1u);
}

}  // namespace
}  // namespace ramet::host
