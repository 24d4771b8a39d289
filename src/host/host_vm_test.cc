// The host over the real monitor, with tiny guests (no agent): sandboxes, forks, deaths, restarts, crashes at every step,
// leaks.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "base/socket.h"
#include "host/crash_point.h"
#include "host/images/images.h"
#include "host/machine.h"
#include "host/registry.h"
#include "host/testing/host_test.h"

namespace ramet::host {
namespace {

// tests/guests/lib/protocol.h: a word is kind << 28 | value.
constexpr uint32_t kReadBlock1 = 6u << 28 | 1, kStartOfBlk = 0x6b6c62;  // "blk" is written there

using testing::monitors_of;
using testing::names_in;
using testing::tiny_options;

class HostVmTest : public testing::HostTest {
 protected:
  void SetUp() override {
    HostTest::SetUp();
    if (IsSkipped()) return;
    const Status uploaded = testing::upload_tiny(*host_, "tiny", "counter");
    ASSERT_TRUE(uploaded) << uploaded.error().to_string();
  }

  uint32_t first_word_of(const std::string& image) {
    const std::unique_ptr<ImageDownload> download = host_->images().download(image).value();
    uint32_t word = 0;
    std::memcpy(&word, download->next().value().data(), sizeof word);
    return word;
  }
};

TEST_F(HostVmTest, CreatesForksAndRemoves) {
  const SandboxInfo a = create();
  EXPECT_EQ(a.state, SandboxState::kRunning);
  const ForkResult r = fork(a.id, 3);
  ASSERT_EQ(r.children.size(), 3u);
  EXPECT_TRUE(r.failed.empty());
  EXPECT_EQ(r.children[0].parent_id, a.id);
  EXPECT_EQ(r.children[0].family_id, a.family_id);
  EXPECT_EQ(r.children[0].depth, 1u);
  EXPECT_GT(r.timing.vcpu_stop_ms, 0);
  const std::vector<TreeNode> tree = host_->tree();
  ASSERT_EQ(tree.size(), 1u);
  EXPECT_EQ(tree[0].children.size(), 3u);
  EXPECT_TRUE(host_->remove(r.children[1].id));
  EXPECT_EQ(host_->list().size(), 3u);
  EXPECT_FALSE(host_->get(r.children[1].id));
}

TEST_F(HostVmTest, AGoneParentStaysInTheTreeWhileAChildLives) {
  const SandboxInfo a = create();
  const ForkResult r = fork(a.id);
  ASSERT_EQ(r.children.size(), 1u);
  ASSERT_TRUE(host_->remove(a.id));
  const std::vector<TreeNode> tree = host_->tree();
  ASSERT_EQ(tree.size(), 1u);
  EXPECT_EQ(tree[0].info.state, SandboxState::kGone);
  ASSERT_EQ(tree[0].children.size(), 1u);
  EXPECT_EQ(host_->get(r.children[0].id)->state, SandboxState::kRunning);
  ASSERT_TRUE(host_->remove(r.children[0].id));
  EXPECT_TRUE(host_->tree().empty());
}

TEST_F(HostVmTest, ADeadMonitorEndsItsSandboxOnly) {
  const SandboxInfo a = create();
  const ForkResult r = fork(a.id, 2);
  ASSERT_EQ(r.children.size(), 2u);
  ASSERT_EQ(::kill(pid_of(a.id), SIGKILL), 0);
  EXPECT_EQ(wait_state(a.id, SandboxState::kFailed), SandboxState::kFailed);
  EXPECT_EQ(host_->get(a.id)->state_reason, "its monitor died");
  for (const SandboxInfo& c : r.children) {
    EXPECT_EQ(host_->get(c.id)->state, SandboxState::kRunning);
    EXPECT_EQ(fork(c.id).children.size(), 1u);
  }
}

TEST_F(HostVmTest, ADeadZygoteIsStartedAnew) {
  create();
  const Result<std::unique_ptr<Registry>> registry = Registry::open(root_ + "/state/ramet.db");
  const Result<std::vector<MachineRow>> rows = (*registry)->machines();
  for (const MachineRow& r : *rows)
    if (r.role == MachineRole::kZygote) ::kill(static_cast<pid_t>(r.pid), SIGKILL);
  EXPECT_EQ(create().state, SandboxState::kRunning);
}

TEST_F(HostVmTest, ChildrenThatTakeLongToBeBornAreNoStrays) {
  host_.reset();
  options_ = tiny_options(root_);
  options_->janitor_interval = options_->stray_interval = Milliseconds(1);
  options_->max_fork_children = 50;
  ASSERT_NO_FATAL_FAILURE(open());
  const SandboxInfo parent = create();
  for (int round = 0; round < 3; round++)
    for (const SandboxInfo& child : fork(parent.id, 50).children) EXPECT_TRUE(host_->remove(child.id));
}

TEST_F(HostVmTest, ANewDaemonAdoptsWhatRuns) {
  const SandboxInfo a = create();
  const ForkResult r = fork(a.id);
  ASSERT_EQ(r.children.size(), 1u);
  const pid_t pid = pid_of(a.id);
  host_.reset();
  ASSERT_EQ(monitors_of(root_).count(pid), 1u) << "the sandbox did not outlive its daemon";
  ::kill(pid_of(r.children[0].id), SIGKILL);
  ASSERT_NO_FATAL_FAILURE(open());
  ASSERT_TRUE(host_->get(a.id));
  EXPECT_EQ(host_->get(a.id)->state, SandboxState::kRunning);
  EXPECT_EQ(host_->get(r.children[0].id)->state, SandboxState::kFailed);
  EXPECT_EQ(fork(a.id).children.size(), 1u);
}

// What the guest reads lies in the store only: nobody has read it before, and the template has no file of it.
TEST_F(HostVmTest, AGuestReadsItsBaseFromTheStoreAlsoWhenItsTemplateIsGone) {
  ASSERT_TRUE(testing::upload_tiny(*host_, "blk", "blk"));
  CreateOptions o;
  o.template_name = "blk";
  const Result<SandboxInfo> s = host_->create(o);
  ASSERT_TRUE(s) << s.error().to_string();
  ASSERT_TRUE(host_->remove_template("blk"));
  EXPECT_FALSE(std::filesystem::exists(root_ + "/state/templates/blk"));
  host_.reset();
  ASSERT_NO_FATAL_FAILURE(open());  // looks for disks that nobody needs, and adopts
  EXPECT_EQ(host_->get(s->id)->state, SandboxState::kRunning);
  std::this_thread::sleep_for(Milliseconds(200));
  host_.reset();
  EXPECT_EQ(step(s->id, kReadBlock1), kStartOfBlk);
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_TRUE(host_->remove(s->id));
}

// Block 0 is the counter of the guest, which goes on between two images of its disk.
TEST_F(HostVmTest, TheDiskOfARunningSandboxBecomesAnImage) {
  ASSERT_TRUE(testing::upload_tiny(*host_, "blk", "blk"));
  CreateOptions o;
  o.template_name = "blk";
  const Result<SandboxInfo> s = host_->create(o);
  ASSERT_TRUE(s);
  const std::string base = "template:" + base_image_of(s->id);
  for (const uint32_t count : {1u, 2u}) {
    host_.reset();
    EXPECT_EQ(step(s->id), count);
    ASSERT_NO_FATAL_FAILURE(open());
    const std::string name = "disk-" + std::to_string(count);
    const Result<CommittedDisk> disk = host_->commit_disk(s->id, name);
    ASSERT_TRUE(disk) << disk.error().to_string();
    EXPECT_EQ(disk->image.bytes, 1u << 20);
    EXPECT_FALSE(disk->clean);
    EXPECT_EQ(disk->why_not_clean, "there is no agent in the guest");
    EXPECT_EQ(first_word_of(name), count);
    EXPECT_EQ(host_->images().diff(base, name)->ranges, (std::vector<image::BlockRange>{{0, 1}}));
    EXPECT_EQ(host_->commit_disk(s->id, name).error().kind(), ErrorKind::kExists);
  }
  EXPECT_EQ(first_word_of("disk-1"), 1u);
  EXPECT_EQ(host_->commit_disk("sb-none", "disk-3").error().kind(), ErrorKind::kNotFound);
  host_.reset();
  EXPECT_EQ(step(s->id), 3u);
  ASSERT_NO_FATAL_FAILURE(open());
}

TEST_F(HostVmTest, TimeIsEnforcedAlsoWhileTheDaemonWasAway) {
  const SandboxInfo a = create(), b = create();
  PatchOptions soon;
  soon.ttl_seconds = 1;
  ASSERT_TRUE(host_->patch(a.id, soon));
  ASSERT_TRUE(host_->patch(b.id, soon));
  EXPECT_EQ(wait_state(a.id, SandboxState::kGone), SandboxState::kGone);
  const SandboxInfo c = create();
  ASSERT_TRUE(host_->patch(c.id, soon));
  host_.reset();
  std::this_thread::sleep_for(Milliseconds(1200));
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_EQ(wait_state(c.id, SandboxState::kGone), SandboxState::kGone);
}

TEST_F(HostVmTest, ManySandboxesAtOnceShareOneBoot) {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 8; i++)
    threads.emplace_back([&] {
      const SandboxInfo s = create();
      if (s.state == SandboxState::kRunning) good++;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(good, 8);
  EXPECT_EQ(names_in(root_ + "/state/machines").size(), 9u);  // and one zygote
}

TEST_F(HostVmTest, ATruncatedKernelIsAnErrorThatSaysSo) {
  ASSERT_TRUE(testing::upload_tiny(*host_, "bad", "counter"));
  std::error_code ec;
  std::filesystem::resize_file(root_ + "/state/templates/bad/vmlinux", 100, ec);
  CreateOptions o;
  o.template_name = "bad";
  const Result<SandboxInfo> s = host_->create(o);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().kind(), ErrorKind::kCorrupt);
  EXPECT_NE(s.error().message().find("100 bytes"), std::string::npos) << s.error().message();
}

TEST_F(HostVmTest, WithoutMemoryACreateIsRefused) {
  host_.reset();
  options_ = tiny_options(root_);
  options_->memory_reserve_mib = 1u << 30;
  ASSERT_NO_FATAL_FAILURE(open());
  CreateOptions o;
  o.template_name = "tiny";
  const Result<SandboxInfo> s = host_->create(o);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().kind(), ErrorKind::kNoMemory);
}

// The guest counts in RAM and in a flushed block at every round and compares the two; what it reads comes through its overlays.
class ChainTest : public HostVmTest {
 protected:
  std::vector<std::string> chain_after_forks(uint32_t longest, int forks) {
    host_.reset();
    options_ = tiny_options(root_);
    options_->longest_overlay_chain = longest;
    open();
    EXPECT_TRUE(testing::upload_tiny(*host_, "blk", "blk"));
    CreateOptions o;
    o.template_name = "blk";
    const Result<SandboxInfo> s = host_->create(o);
    EXPECT_TRUE(s);
    if (!s) return {};
    for (int i = 1; i <= forks; i++) {
      host_.reset();  // the guest's debug port is reached over the one control connection
      EXPECT_EQ(step(s->id), static_cast<uint32_t>(i)) << "the disk is no longer what the guest wrote";
      open();
      const ForkResult r = fork(s->id);
      for (const SandboxInfo& c : r.children) EXPECT_TRUE(host_->remove(c.id));
    }
    const Result<std::unique_ptr<Registry>> registry = Registry::open(root_ + "/state/ramet.db");
    std::vector<std::string> chain;
    for (int i = 0; i < 200; i++) {  // it happens in the background
      chain = *(*registry)->chain(s->id);
      if (chain.size() <= longest + 2) break;
      std::this_thread::sleep_for(Milliseconds(50));
    }
    host_.reset();
    EXPECT_EQ(step(s->id), forks + 1u);
    open();
    return chain;
  }
};

TEST_F(ChainTest, CoveredOverlaysAreForgotten) { EXPECT_LE(chain_after_forks(4, 10).size(), 6u); }

TEST_F(ChainTest, FrozenOnesAreMergedUnderARunningGuest) { EXPECT_EQ(chain_after_forks(0, 4).size(), 2u); }

// Everything that is left after the daemon died at `step` is adopted or undone, and then nothing remains.
class CrashTest : public HostVmTest, public ::testing::WithParamInterface<std::string_view> {
 protected:
  bool is_whole(const std::string& image) {
    const std::unique_ptr<ImageDownload> download = host_->images().download(image).value();
    for (;;) {
      const Result<std::span<const std::byte>> piece = download->next();
      if (!piece || piece->empty()) return piece.has_value();
    }
  }
};

TEST_P(CrashTest, NothingIsLostOrLeft) {
  host_.reset();
  SpawnOptions spawn;
  spawn.argv = {std::string(RAMET_BINARY_DIR) + "/test/host_crash_driver", root_};
  std::vector<std::string> env;
  for (char** e = ::environ; *e; e++) env.emplace_back(*e);
  env.push_back("RAMET_CRASH_AT=" + std::string(GetParam()));
  spawn.env = env;
  Result<ChildProcess> driver = ChildProcess::spawn(spawn);
  ASSERT_TRUE(driver);
  const std::optional<int> status = driver->wait(deadline_after(Milliseconds(60'000)));
  ASSERT_TRUE(status) << "the driver hangs";
  if (GetParam() != "boot.agent_ready" && GetParam() != "fork.frozen") {  // need an agent
    ASSERT_TRUE(WIFSIGNALED(*status)) << "step was not reached, status " << *status;
  }
  ASSERT_NO_FATAL_FAILURE(open());
  // What is listed runs, and can still be used.
  for (const SandboxInfo& s : host_->list()) {
    EXPECT_TRUE(s.state == SandboxState::kRunning || s.state == SandboxState::kPaused) << s.id << " " << s.state_reason;
    EXPECT_EQ(fork(s.id).children.size(), 1u);
    if (s.state == SandboxState::kPaused) {
      EXPECT_TRUE(host_->resume(s.id));
    }
  }
  const Result<std::vector<SnapshotInfo>> snapshots = host_->snapshots();
  ASSERT_TRUE(snapshots) << snapshots.error().to_string();
  for (const SnapshotInfo& s : *snapshots) {
    CreateOptions from;
    from.snapshot = s.id;
    EXPECT_TRUE(host_->create(from)) << s.id;
    EXPECT_TRUE(host_->remove_snapshot(s.id));
  }
  const Result<std::vector<ImageInfo>> images = host_->images().list();
  ASSERT_TRUE(images) << images.error().to_string();
  for (const ImageInfo& image : *images) EXPECT_TRUE(is_whole(image.name)) << image.name;
  for (const TemplateInfo& t : host_->templates())
    if (t.name == "warm") {
      EXPECT_FALSE(host_->remove_snapshot(t.saved)) << "its machine is nobody's snapshot";
      EXPECT_EQ(create("warm").state, SandboxState::kRunning);
      EXPECT_TRUE(host_->remove_template("warm"));
    }
  const SandboxInfo fresh = create();
  EXPECT_EQ(fresh.state, SandboxState::kRunning);
  host_.reset();
  EXPECT_EQ(step(fresh.id), 1u) << "it stands on memory that is not right";
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_EQ(create().state, SandboxState::kRunning);  // the zygotes went with the daemon
  for (const SandboxInfo& s : host_->list()) EXPECT_TRUE(host_->remove(s.id));
  EXPECT_TRUE(host_->tree().empty());
  const size_t zygote_overlays = 0;  // the tiny guest wrote nothing
  EXPECT_EQ(settled_overlays(zygote_overlays).size(), zygote_overlays);
  EXPECT_TRUE(eventually([&] { return names_in(root_ + "/state/machines").size() == 1; })) << "the zygote and nothing else";
  EXPECT_TRUE(eventually([&] { return names_in(root_ + "/state/store/snapshots").size() <= 1; }))
      << "more is left than the machine of the template";
  EXPECT_EQ(names_in(root_ + "/run/vm").size(), 1u);
  EXPECT_EQ(monitors_of(root_).size(), 1u);
  host_.reset();
  EXPECT_TRUE(names_in(root_ + "/state/machines").empty());
}

INSTANTIATE_TEST_SUITE_P(EveryStep, CrashTest, ::testing::ValuesIn(all_crash_points().begin(), all_crash_points().end()),
                         [](const ::testing::TestParamInfo<std::string_view>& p) {
                           std::string name(p.param);
                           for (char& c : name)
                             if (c == '.') c = '_';
                           return name;
                         });

// What is being born has its row, and its control group stays, whenever somebody looks for what belongs to nobody.
TEST_F(HostVmTest, MachinesAreBornWhileStraysAreLookedFor) {
  host_.reset();
  options_ = tiny_options(root_);
  options_->janitor_interval = options_->stray_interval = Milliseconds(1);
  for (int i = 0; i < 5; i++) {
    open();  // a new zygote, at the time of the first look
    for (int k = 0; k < 5; k++) EXPECT_TRUE(host_->remove(create().id));
    host_.reset();
  }
  open();
}

TEST_F(HostVmTest, RoundsOfCreateForkKillLeaveNothing) {
  const char* asked = std::getenv("RAMET_SOAK_ROUNDS");
  const int rounds = asked ? std::atoi(asked) : 100;
  const auto round = [&] {
    const SandboxInfo a = create();
    const ForkResult r = fork(a.id, 2);
    ASSERT_EQ(r.children.size(), 2u);
    ASSERT_TRUE(host_->remove(a.id));
    for (const SandboxInfo& c : r.children) ASSERT_TRUE(host_->remove(c.id));
  };
  round();
  settled_overlays(0);
  const size_t descriptors = settled_descriptors();
  for (int i = 0; i < rounds; i++) round();
  EXPECT_TRUE(settled_overlays(0).empty());
  EXPECT_EQ(settled_descriptors(descriptors), descriptors);
  EXPECT_EQ(monitors_of(root_).size(), 1u);
  EXPECT_TRUE(host_->tree().empty());
  std::printf("%d rounds\n", rounds);
}

}  // namespace
}  // namespace ramet::host
