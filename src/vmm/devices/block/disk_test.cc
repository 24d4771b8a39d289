#include "vmm/devices/block/disk.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>

#include "base/file.h"
#include "vmm/devices/block/guest_fake.h"

namespace ramet::vmm {
namespace {

constexpr uint64_t kBytes = 64ull << 20;

class DiskFork : public ::testing::Test {
 protected:
  DiskFork() {
    char path[] = "/tmp/ramet-disk-XXXXXX";
    folder_ = ::mkdtemp(path);
  }
  ~DiskFork() override { std::filesystem::remove_all(folder_); }

  UniqueFd open(const std::string& name, int flags) { return open_file(folder_ + "/" + name, flags, 0600).value(); }
  OverlayDescriptors overlay(const std::string& id, bool writable = true) {
    OverlayDescriptors o;
    o.id = id;
    o.data_rw = open(id + ".data", O_RDWR | O_CREAT);
    o.log_rw = open(id + ".log", O_RDWR | O_CREAT);
    o.data_ro = open(id + ".data", O_RDONLY);
    o.log_ro = open(id + ".log", O_RDONLY);
    if (!writable) {
      o.data_rw.reset();
      o.log_rw.reset();
    }
    return o;
  }
  std::unique_ptr<Disk> disk(std::optional<OverlayDescriptors> writable) {
    return Disk::open({.id = "vda", .size_bytes = kBytes, .writable = std::move(writable)}).value();
  }
  uint64_t allocated(const std::string& name) {
    struct stat s {};
    ::stat((folder_ + "/" + name).c_str(), &s);
    return static_cast<uint64_t>(s.st_blocks) * 512;
  }
  std::string folder_;
};

Deadline late() { return deadline_after(std::chrono::seconds(10)); }
constexpr int kForks = 150;  // enough to meet a worker that takes its job at that instant

// Descriptors of this process that are open for writing a file whose name ends so.
int writers_of(const std::string& name) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (error || !target.ends_with(name)) continue;
    count += (::fcntl(std::stoi(entry.path().filename()), F_GETFL) & O_ACCMODE) != O_RDONLY;
  }
  return count;
}

TEST_F(DiskFork, BranchesSeeTheInstantAndNotEachOther) {
  std::unique_ptr<Disk> d = disk(overlay("a"));
  BlockGuestFake guest(d->device());
  guest.start();
  ASSERT_EQ(guest.write_block(1, 'o'), 0);
  ASSERT_TRUE(guest.driver.transport().quiesce(late()));
  ASSERT_TRUE(d->freeze().value());
  const pid_t child = ::fork();
  if (child == 0) {
    guest.driver.transport().after_fork();
    bool good = writers_of("/a.data") == 0 && writers_of("/a.log") == 0 && d->start_overlay(overlay("child")).has_value();
    guest.driver.transport().resume();
    good = good && guest.read_block(1) == 'o' && guest.write_block(2, 'c') == 0 && guest.flush() == 0;
    good = good && guest.read_block(2) == 'c' && guest.read_block(1) == 'o';
    ::_exit(good ? 0 : 1);
  }
  EXPECT_EQ(writers_of("/a.data") + writers_of("/a.log"), 0);
  ASSERT_TRUE(d->start_overlay(overlay("parent")));
  guest.driver.transport().resume();
  EXPECT_EQ(guest.write_block(1, 'p'), 0);
  EXPECT_EQ(guest.flush(), 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(guest.read_block(1), 'p');
  EXPECT_EQ(guest.read_block(2), '\0');
  EXPECT_EQ(d->frozen_ids(), std::vector<std::string>{"a"});
  EXPECT_EQ(d->overlay_blocks(), 1u);
}

TEST_F(DiskFork, AChildDropsItsParentsUntouchedOverlay) {
  std::unique_ptr<Disk> d = disk(overlay("a"));
  BlockGuestFake guest(d->device());
  guest.start();
  ASSERT_TRUE(guest.driver.transport().quiesce(late()));
  ASSERT_FALSE(d->freeze().value());
  const pid_t child = ::fork();
  if (child == 0) {
    guest.driver.transport().after_fork();
    const bool good =
        d->start_overlay(overlay("child")).has_value() && writers_of("/a.data") == 0 && writers_of("/child.data") == 1;
    guest.driver.transport().resume();
    ::_exit(good && guest.write_block(1, 'c') == 0 && guest.flush() == 0 ? 0 : 1);
  }
  guest.driver.transport().resume();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(guest.read_block(1), '\0');
  EXPECT_EQ(d->writable_id(), "a");
}

// Forks in the middle of flushes, many times: no deadlock, no lost or doubled answer, both sides whole.
TEST_F(DiskFork, AnyMomentOfAFlushIsAGoodMomentToFork) {
  std::unique_ptr<Disk> d = disk(overlay("a"));
  BlockGuestFake guest(d->device());
  guest.start();
  for (int round = 0; round < kForks; round++) {
    guest.start();
    const char mark = static_cast<char>('A' + round % 26);
    for (uint64_t b = 0; b < 20; b++) ASSERT_EQ(guest.write_block(b * 7, mark), 0);
    // A block of its own for each round, so that layers pile up and upkeep runs beside forks and flushes.
    ASSERT_EQ(guest.write_block(1000 + static_cast<uint64_t>(round), mark), 0);
    guest.submit(VIRTIO_BLK_T_FLUSH, 0, {}, 0);
    std::this_thread::sleep_for(std::chrono::microseconds(round * 37 % 1500));
    ASSERT_TRUE(guest.driver.transport().quiesce(late()));
    const bool frozen = d->freeze().value();
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      guest.driver.transport().after_fork();
      bool good = d->start_overlay(overlay("c" + std::to_string(round))).has_value();
      guest.driver.transport().resume();
      const std::optional<BlockGuestFake::Answer> answer = guest.take();
      good = good && answer && answer->status == 0 && guest.read_block(7) == mark && guest.read_block(1000) == 'A' &&
             guest.write_block(7, 'z') == 0;
      ::_exit(good && guest.flush() == 0 && guest.read_block(7) == 'z' ? 0 : 1);
    }
    if (frozen) {
      ASSERT_TRUE(d->start_overlay(overlay("p" + std::to_string(round))));
    }
    guest.driver.transport().resume();
    ASSERT_EQ(guest.take().value().status, 0);
    ASSERT_EQ(guest.read_block(7), mark);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "round " << round;
  }
  EXPECT_LE(d->frozen_ids().size(), 40u);
  for (int round = 0; round < kForks; round++)
    ASSERT_EQ(guest.read_block(1000 + static_cast<uint64_t>(round)), 'A' + round % 26);
}

TEST_F(DiskFork, DiscardGivesSpaceBack) {
  std::unique_ptr<Disk> d = disk(overlay("a"));
  BlockGuestFake guest(d->device());
  guest.start();
  ASSERT_EQ(guest.call(VIRTIO_BLK_T_OUT, 0, std::string(4 << 20, 'd')).status, 0);
  ASSERT_EQ(guest.flush(), 0);
  EXPECT_GE(allocated("a.data"), 4u << 20);
  ASSERT_EQ(guest.zero(VIRTIO_BLK_T_DISCARD, 0, (4 << 20) / 512), 0);
  ASSERT_EQ(guest.flush(), 0);
  EXPECT_LT(allocated("a.data"), 64u << 10);
}

TEST_F(DiskFork, MissingDescriptorsAndWrongSizesAreErrors) {
  OverlayDescriptors lame = overlay("a");
  lame.log_rw.reset();
  EXPECT_EQ(Disk::open({.id = "vda", .size_bytes = kBytes, .writable = std::move(lame)}).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(Disk::open({.id = "vda", .size_bytes = 100}).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(Disk::open({.id = "vda", .size_bytes = 0}).error().kind(), ErrorKind::kInvalid);
}

}  // namespace
}  // namespace ramet::vmm
