#include "vmm/devices/balloon/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/virtio_balloon.h>

#include "base/endian.h"
#include "vmm/devices/driver_fake.h"

namespace ramet::vmm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class BalloonTest : public ::testing::Test {
 protected:
  BalloonTest() : device_([this](GuestAddr a, uint64_t n) { return drop(a, n); }), driver_(device_) {}

  bool drop(GuestAddr a, uint64_t n) {
    if (!driver_.memory().resolve(a, n)) return false;
    dropped_.push_back({a, n});
    return true;
  }
  void start(uint16_t queues = 3) {
    driver_.start(queues, (1ull << VIRTIO_BALLOON_F_REPORTING) | (1ull << VIRTIO_RING_F_EVENT_IDX));
  }
  bool give(uint16_t queue, std::vector<DriverFake::Buffer> buffers) {
    if (!driver_.add(queue, buffers)) return false;
    driver_.kick(queue);
    return driver_.take_used(queue).has_value();
  }
  bool inflate(std::vector<uint32_t> pages, uint16_t queue = 0) {
    const std::vector<le32> wire(pages.begin(), pages.end());
    const GuestAddr at = driver_.allocate(static_cast<uint32_t>(4 * wire.size()));
    driver_.put_bytes(at, {reinterpret_cast<const char*>(wire.data()), 4 * wire.size()});
    return give(queue, {{at, static_cast<uint32_t>(4 * wire.size()), false}});
  }

  std::vector<PageRange> dropped_;
  BalloonDevice device_;
  DriverFake driver_;
};

TEST_F(BalloonTest, OffersReportingAndNeitherPoisonNorHintsNorStatistics) {
  const uint64_t features = device_.offered_features();
  EXPECT_TRUE(features & (1ull << VIRTIO_BALLOON_F_REPORTING));
  EXPECT_FALSE(features & (1ull << VIRTIO_BALLOON_F_PAGE_POISON));
  EXPECT_FALSE(features & (1ull << VIRTIO_BALLOON_F_FREE_PAGE_HINT));
  EXPECT_FALSE(features & (1ull << VIRTIO_BALLOON_F_STATS_VQ));
}

TEST_F(BalloonTest, ReportedRangesAreDropped) {
  start();
  EXPECT_TRUE(give(2, {{{0x100000}, 0x200000, true}, {{0x400000}, 0x1000, true}}));
  EXPECT_THAT(dropped_, ElementsAre(PageRange{{0x100000}, 0x200000}, PageRange{{0x400000}, 0x1000}));
  EXPECT_EQ(device_.metrics().reported_bytes, 0x201000u);
}

TEST_F(BalloonTest, TheReportingQueueMayHaveItsNumberOfTheSpecification) {
  start(5);
  EXPECT_TRUE(give(4, {{{0x100000}, 0x1000, true}}));
  EXPECT_THAT(dropped_, ElementsAre(PageRange{{0x100000}, 0x1000}));
}

TEST_F(BalloonTest, OnlyWholePagesOfAReportAreDropped) {
  start();
  EXPECT_TRUE(give(2, {{{0x100800}, 0x2000, true}, {{0x300100}, 0x200, true}}));
  EXPECT_THAT(dropped_, ElementsAre(PageRange{{0x101000}, 0x1000}));
}

TEST_F(BalloonTest, AReadableReportDropsNothing) {
  start();
  EXPECT_TRUE(give(2, {{{0x100000}, 0x1000, false}}));
  EXPECT_THAT(dropped_, IsEmpty());
}

TEST_F(BalloonTest, InflatedPagesAreMergedAndDropped) {
  start();
  EXPECT_TRUE(inflate({0x202, 0x200, 0x201, 0x300, 0x300}));
  EXPECT_THAT(dropped_, ElementsAre(PageRange{{0x200000}, 0x3000}, PageRange{{0x300000}, 0x1000}));
}

TEST_F(BalloonTest, PagesBeyondRamAreRefused) {
  start();
  EXPECT_TRUE(inflate({0x300, 0xffffffff, 0x80000000}));
  EXPECT_THAT(dropped_, ElementsAre(PageRange{{0x300000}, 0x1000}));
  EXPECT_EQ(device_.metrics().refused_bytes, 0x2000u);
  EXPECT_FALSE(driver_.needs_reset());
}

TEST_F(BalloonTest, DeflatingDropsNothing) {
  start();
  EXPECT_TRUE(inflate({0x200}, 1));
  EXPECT_THAT(dropped_, IsEmpty());
}

TEST_F(BalloonTest, AnEndlessListIsCutOff) {
  start();
  EXPECT_TRUE(give(0, {{{0x0}, 1 << 20, false}}));  // 256 Ki page numbers, all zero where RAM is
  EXPECT_LE(dropped_.size(), kMaxPagesPerChain);
}

TEST_F(BalloonTest, TheTargetReachesTheGuestAndTheAnswerComesBack) {
  start();
  const int before = driver_.interrupts();
  device_.set_target(1234);
  EXPECT_EQ(driver_.interrupts(), before + 1);
  EXPECT_EQ(driver_.read(VIRTIO_MMIO_CONFIG + offsetof(virtio_balloon_config, num_pages)), 1234u);
  driver_.write(VIRTIO_MMIO_CONFIG + offsetof(virtio_balloon_config, actual), 1000);
  EXPECT_EQ(device_.actual_pages(), 1000u);
  driver_.write(VIRTIO_MMIO_CONFIG + offsetof(virtio_balloon_config, num_pages), 1);
  EXPECT_EQ(driver_.read(VIRTIO_MMIO_CONFIG + offsetof(virtio_balloon_config, num_pages)), 1234u);
}

TEST_F(BalloonTest, StateSurvivesSaveAndRestore) {
  start();
  device_.set_target(7);
  driver_.write(VIRTIO_MMIO_CONFIG + 4, 5);
  ASSERT_TRUE(driver_.transport().quiesce(deadline_after(std::chrono::seconds(1))));
  const std::string bytes = driver_.transport().save();
  BalloonDevice other([](GuestAddr, uint64_t) { return true; });
  MmioTransport transport(driver_.memory(), other, [] {});
  ASSERT_TRUE(transport.restore(bytes));
  EXPECT_EQ(other.actual_pages(), 5u);
  EXPECT_FALSE(other.restore("short"));
}

}  // namespace
}  // namespace ramet::vmm
