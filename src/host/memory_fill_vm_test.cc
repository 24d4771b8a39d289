// Machines that run before their memory is there, over the real monitor. The guest (tests/guests/keeper) checks what it knows
// against its disk all the time, and ends when something is wrong: a page of zeros where its memory was, say.
#include <sys/stat.h>

#include "host/memory_filler.h"
#include "host/testing/keeper_test.h"

namespace ramet::host {
namespace {

using testing::names_in;
using testing::tiny_options;

class MemoryFillVmTest : public testing::KeeperTest {
 protected:
  void SetUp() override {
    KeeperTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_NO_FATAL_FAILURE(upload("keeper", 0));
    const SandboxInfo a = create("keeper");
    ASSERT_NO_FATAL_FAILURE(wait_passes(a.id, 2));
    SnapshotOptions o;
    o.strictness = ForkStrictness::kLoose;
    const Result<SnapshotResult> taken = host_->snapshot(a.id, o);
    ASSERT_TRUE(taken) << taken.error().to_string();
    snapshot_ = taken->info.id;
    ASSERT_TRUE(host_->remove(a.id));
  }
  void open_with(MemoryFill fill) {
    HostOptions options = tiny_options(root_);
    options.memory_fill = fill;
    options.child_deadline = Milliseconds(5000);
    ASSERT_NO_FATAL_FAILURE(reopen(options));
  }
  Result<SandboxInfo> try_start() {
    CreateOptions o;
    o.snapshot = snapshot_;
    return host_->create(o);
  }
  SandboxInfo start() {
    Result<SandboxInfo> s = try_start();
    EXPECT_TRUE(s) << (s ? "" : s.error().to_string());
    return s ? *s : SandboxInfo{};
  }
  // Of the files that its memory is mapped from.
  uint64_t bytes_there(const std::string& id) {
    const Result<MemoryFilePair> files = open_memory_files(pid_of(id), snapshot_);
    if (!files) return 0;
    struct stat even, odd;
    EXPECT_EQ(::fstat(files->even.get(), &even) | ::fstat(files->odd.get(), &odd), 0);
    return static_cast<uint64_t>(even.st_blocks + odd.st_blocks) * 512;
  }
  bool complete(const std::string& id) {
    const Result<MemoryFilePair> files = open_memory_files(pid_of(id), snapshot_);
    return files && is_complete(*files);
  }

  std::string snapshot_;
};

TEST_F(MemoryFillVmTest, AMachineRunsOnWhatItTouchesAlone) {
  ASSERT_NO_FATAL_FAILURE(open_with(MemoryFill::kWhole));
  const SandboxInfo whole = start();
  const uint64_t all = bytes_there(whole.id);
  ASSERT_GT(all, 0u);
  EXPECT_TRUE(host_->remove(whole.id));

  ASSERT_NO_FATAL_FAILURE(open_with(MemoryFill::kOnlyOnDemand));
  const SandboxInfo a = start();
  wait_passes(a.id, 3);
  EXPECT_FALSE(complete(a.id));
  EXPECT_GT(bytes_there(a.id), 0u);
  EXPECT_LT(bytes_there(a.id), all);
  std::printf("%llu of %llu bytes of its memory were touched\n", static_cast<unsigned long long>(bytes_there(a.id)),
              static_cast<unsigned long long>(all));
}

TEST_F(MemoryFillVmTest, TheRestComesMeanwhileAndThenOthersStartToo) {
  const SandboxInfo a = start(), b = start();
  wait_passes(a.id, 2);
  wait_passes(b.id, 2);
  EXPECT_TRUE(complete(a.id));
  EXPECT_TRUE(complete(b.id));
}

TEST_F(MemoryFillVmTest, WhoComesSecondWaitsUntilItIsCompleteOrItsDeadline) {
  ASSERT_NO_FATAL_FAILURE(open_with(MemoryFill::kOnlyOnDemand));
  const SandboxInfo a = start();
  const Result<SandboxInfo> b = try_start();
  ASSERT_FALSE(b);
  EXPECT_EQ(b.error().kind(), ErrorKind::kTimeout);
  EXPECT_NE(b.error().message().find("chunks are missing"), std::string::npos) << b.error().to_string();
  wait_passes(a.id, 2);
}

TEST_F(MemoryFillVmTest, ItIsForkedSnapshottedAndPausedBeforeItsMemoryIsThere) {
  ASSERT_NO_FATAL_FAILURE(open_with(MemoryFill::kOnlyOnDemand));
  const SandboxInfo a = start();
  const ForkResult direct = fork(a.id), many = fork(a.id, 3);
  ASSERT_EQ(many.children.size(), 3u);
  const ForkResult deeper = fork(many.children[1].id, 2);
  std::vector<std::string> ids{a.id};
  for (const ForkResult* r : {&direct, &many, &deeper})
    for (const SandboxInfo& c : r->children) ids.push_back(c.id);
  for (const std::string& id : ids) wait_passes(id, 2);
  EXPECT_FALSE(complete(a.id));

  SnapshotOptions o;
  o.strictness = ForkStrictness::kLoose;
  const Result<SnapshotResult> taken = host_->snapshot(a.id, o);
  ASSERT_TRUE(taken) << taken.error().to_string();
  const Result<SandboxInfo> paused = host_->pause(a.id);
  ASSERT_TRUE(paused) << paused.error().to_string();
  ASSERT_TRUE(host_->resume(a.id));
  wait_passes(a.id, 2);
  snapshot_ = taken->info.id;
  wait_passes(start().id, 2);
}

TEST_F(MemoryFillVmTest, DeepForksOfOneWhoseMemoryIsNotThereYet) {
  ASSERT_NO_FATAL_FAILURE(open_with(MemoryFill::kOnlyOnDemand));
  std::string id = start().id;
  for (int depth = 0; depth < 20; depth++) {  // past the depth at which memory is rebased
    const ForkResult r = fork(id);
    ASSERT_EQ(r.children.size(), 1u);
    ASSERT_TRUE(host_->remove(id));
    id = r.children[0].id;
  }
  wait_passes(id, 2);
}

// The daemon ends in the middle: whoever waits goes on waiting until the next one takes over.
TEST_F(MemoryFillVmTest, TheNextDaemonTakesOver) {
  ASSERT_NO_FATAL_FAILURE(open_with(MemoryFill::kOnlyOnDemand));
  const SandboxInfo a = start();
  const ForkResult r = fork(a.id, 2);
  EXPECT_FALSE(complete(a.id));
  ASSERT_NO_FATAL_FAILURE(open_with(MemoryFill::kOnlyOnDemand));
  wait_passes(a.id, 2);
  EXPECT_FALSE(complete(a.id));
  ASSERT_NO_FATAL_FAILURE(open_with(MemoryFill::kOnDemand));
  wait_passes(a.id, 2);
  for (const SandboxInfo& c : r.children) wait_passes(c.id, 2);
  EXPECT_TRUE(eventually([&] { return complete(a.id) && complete(r.children[0].id); }));
  // The monitors let go of their descriptors.
  EXPECT_TRUE(eventually([&] {
    for (const std::string& id : {a.id, r.children[0].id, r.children[1].id}) {
      const std::string dir = "/proc/" + std::to_string(pid_of(id)) + "/fd/";
      std::error_code gone;
      for (const std::string& fd : names_in(dir))
        if (std::filesystem::read_symlink(dir + fd, gone) == "anon_inode:[userfaultfd]") return false;
    }
    return true;
  }));
  wait_passes(a.id, 2);
}

TEST_F(MemoryFillVmTest, WhatTheFirstStartTouchedIsNoted) {
  const auto details = [&] {
    for (const std::string& name : names_in(root_ + "/state/store/snapshots"))
      if (name.starts_with(snapshot_))
        return read_file(root_ + "/state/store/snapshots/" + name, 1u << 20).value_or("unreadable");
    return std::string("not there");
  };
  EXPECT_NE(details().find("\"working_set\":[]"), std::string::npos);
  ASSERT_NO_FATAL_FAILURE(open_with(MemoryFill::kOnlyOnDemand));
  wait_passes(start().id, 1);
  EXPECT_TRUE(eventually([&] { return details().find("\"working_set\":[]") == std::string::npos; }));
}

TEST_F(MemoryFillVmTest, NothingIsLeftOfItWhenItsMachinesAreGone) {
  ASSERT_NO_FATAL_FAILURE(open_with(MemoryFill::kOnlyOnDemand));
  const auto round = [&] {
    const SandboxInfo a = start();
    const ForkResult r = fork(a.id);
    for (const std::string& id : {a.id, r.children[0].id}) ASSERT_TRUE(host_->remove(id));
    ASSERT_TRUE(host_->pause(create("keeper").id));
    for (const SandboxInfo& s : host_->list()) {
      ASSERT_TRUE(host_->resume(s.id));
      ASSERT_TRUE(host_->remove(s.id));
    }
    ASSERT_NO_FATAL_FAILURE(open_with(MemoryFill::kOnlyOnDemand));
  };
  const auto threads = [] { return names_in("/proc/self/task").size(); };
  round();
  const size_t descriptors = settled_descriptors(), before = threads();
  for (int i = 0; i < 3; i++) round();
  EXPECT_EQ(settled_descriptors(descriptors), descriptors);
  EXPECT_TRUE(eventually([&] { return threads() <= before; })) << threads() << " threads, " << before << " before";
}

}  // namespace
}  // namespace ramet::host
