// A host whose disk is really full, over the real monitor: nothing new begins, what runs goes on, what is old can go, and the
// space is worth something again.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/testing/small_disk.h"
#include "host/testing/host_test.h"
#include "vmm/control/client.h"

namespace ramet::host {
namespace {

// tests/guests/lib/protocol.h: a word is kind << 28 | value.
constexpr uint32_t kGo = 9u << 28, kTick = 2;

class FullDiskVmTest : public testing::HostTest {
 protected:
  void SetUp() override {
    HostTest::SetUp();
    if (IsSkipped()) return;
    host_.reset();
    disk_ = ramet::testing::SmallDisk::mount(root_ + "/state", 64u << 20);
    if (!disk_) GTEST_SKIP() << "cannot mount a small file system: " << strerror(errno);
    options_ = testing::tiny_options(root_);
    options_->disk_reserve_mib = 1;
    options_->keep_booted = Milliseconds(0);  // storing it would use the disk meanwhile
    ASSERT_NO_FATAL_FAILURE(open());
    ASSERT_TRUE(testing::upload_tiny(*host_, "tiny", "counter"));
    ASSERT_TRUE(testing::upload_tiny(*host_, "flood", "flood"));
  }
  void TearDown() override {
    if (disk_) disk_->free();
    if (host_) {
      for (const SandboxInfo& s : host_->list()) EXPECT_TRUE(host_->remove(s.id));
    }
    host_.reset();
    disk_.reset();
    HostTest::TearDown();
  }
  std::string ballast() const { return root_ + "/state/ballast"; }
  // It is laid out in the background.
  void wait_for_ballast() const {
    for (int i = 0; i < 200 && !std::filesystem::exists(ballast()); i++) std::this_thread::sleep_for(Milliseconds(20));
    ASSERT_TRUE(std::filesystem::exists(ballast()));
  }
  std::set<std::string> machines() const { return testing::names_in(root_ + "/state/machines"); }
  size_t rows() const { return Registry::open(root_ + "/state/ramet.db").value()->machines()->size(); }

  std::unique_ptr<ramet::testing::SmallDisk> disk_;
};

TEST_F(FullDiskVmTest, RefusesNewOnesAndLetsOldOnesGo) {
  const SandboxInfo a = create();
  wait_for_ballast();
  const std::set<std::string> before = machines();
  disk_->fill();
  CreateOptions o;
  o.template_name = "tiny";
  EXPECT_EQ(host_->create(o).error().kind(), ErrorKind::kNoSpace);
  ForkOptions f;
  f.strictness = ForkStrictness::kLoose;
  EXPECT_EQ(host_->fork(a.id, f).error().kind(), ErrorKind::kNoSpace);
  EXPECT_EQ(machines(), before) << "nothing of the refused ones";
  EXPECT_TRUE(host_->remove(a.id));
  EXPECT_TRUE(host_->list().empty());
}

// What the daemon keeps for this may be gone already.
TEST_F(FullDiskVmTest, RemovesWithoutAByteFreeAndGivesTheSpaceBack) {
  const SandboxInfo a = create(), b = create();
  wait_for_ballast();
  const size_t before = rows();
  std::filesystem::remove(ballast());
  disk_->fill();
  EXPECT_TRUE(host_->remove(a.id));
  EXPECT_EQ(rows(), before - 1);
  EXPECT_EQ(settled_overlays(2).size(), 2u) << "the two files of the other one's overlay";
  EXPECT_EQ(host_->list().size(), 1u);
  disk_->free();
  const SandboxInfo c = create();
  EXPECT_EQ(c.state, SandboxState::kRunning);
  EXPECT_EQ(fork(b.id).children.size(), 1u);
}

TEST_F(FullDiskVmTest, ADaemonStartsOnItAndRemoves) {
  const SandboxInfo a = create();
  wait_for_ballast();
  host_.reset();
  disk_->fill();
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_EQ(host_->get(a.id)->state, SandboxState::kRunning);
  EXPECT_TRUE(host_->remove(a.id));
  EXPECT_TRUE(host_->list().empty());
}

TEST_F(FullDiskVmTest, ATemplateIsRefusedAndThePresentOneStays) {
  disk_->fill();
  EXPECT_EQ(testing::upload_tiny(*host_, "tiny", "hog").error().kind(), ErrorKind::kNoSpace);
  EXPECT_EQ(host_->templates().size(), 2u);
  disk_->free();
  EXPECT_EQ(create().state, SandboxState::kRunning);
  EXPECT_TRUE(testing::upload_tiny(*host_, "tiny", "hog"));
}

// A guest that floods its console: text is lost while there is no room, and nothing else.
TEST_F(FullDiskVmTest, AConsoleLogWithoutRoomStopsNobody) {
  const SandboxInfo a = create("flood");
  wait_for_ballast();
  host_.reset();  // the guest's debug port is reached over the one control connection
  std::atomic<uint32_t> ticks{0};
  Result<std::unique_ptr<vmm::control::Client>> client =
      vmm::control::Client::connect(root_ + "/run/vm/" + a.id + ".sock", [&](const vmm::Event& e) {
        if (e.has_debug_port() && e.debug_port().value() >> 28 == kTick) ticks++;
      });
  ASSERT_TRUE(client) << client.error().to_string();
  const std::string console = root_ + "/state/machines/" + a.id + "/console.log";
  const auto goes_on = [](const std::function<uint64_t()>& counter) {
    const uint64_t before = counter();
    for (int i = 0; i < 500 && counter() < before + 3; i++) std::this_thread::sleep_for(Milliseconds(10));
    return counter() >= before + 3;
  };
  disk_->fill();
  EXPECT_TRUE((*client)->debug_push(std::span(&kGo, 1), deadline_after(Milliseconds(2000))));
  EXPECT_TRUE(goes_on([&] { return ticks.load(); }));
  EXPECT_LE(std::filesystem::file_size(console), 4096u) << "there was no room for more";
  disk_->free();
  EXPECT_TRUE(goes_on([&] { return std::filesystem::file_size(console) / 4096; }));
  EXPECT_TRUE(goes_on([&] { return ticks.load(); }));
  client = fail(ErrorKind::kInternal, "");
  ASSERT_NO_FATAL_FAILURE(open());
  EXPECT_EQ(host_->get(a.id)->state, SandboxState::kRunning);
}

}  // namespace
}  // namespace ramet::host
