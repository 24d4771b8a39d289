#include "vmm/devices/rng/device.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "vmm/devices/driver_fake.h"
#include "vmm/devices/rng/request.h"

namespace ramet::vmm {
namespace {

class RngTest : public ::testing::Test {
 protected:
  // The length of the answer; -1: none.
  int ask(std::vector<DriverFake::Buffer> buffers) {
    if (!driver_.add(0, buffers)) return -2;
    driver_.kick(0);
    const std::optional<DriverFake::Used> used = driver_.take_used(0);
    return used ? static_cast<int>(used->written) : -1;
  }
  RngDevice device_;
  DriverFake driver_{device_};
};

TEST_F(RngTest, FillsTheBufferAndInterrupts) {
  driver_.start(1);
  const GuestAddr at = driver_.allocate(64);
  EXPECT_EQ(ask({{at, 64, true}}), 64);
  EXPECT_NE(driver_.bytes_at(at, 64), std::string(64, '\0'));
  EXPECT_EQ(driver_.interrupts(), 1);
}

TEST_F(RngTest, TwoRequestsDiffer) {
  driver_.start(1);
  const GuestAddr a = driver_.allocate(32), b = driver_.allocate(32);
  EXPECT_EQ(ask({{a, 32, true}}), 32);
  EXPECT_EQ(ask({{b, 32, true}}), 32);
  EXPECT_NE(driver_.bytes_at(a, 32), driver_.bytes_at(b, 32));
}

TEST_F(RngTest, FillsScatteredBuffersAndNothingBeside) {
  driver_.start(1);
  const GuestAddr at = driver_.allocate(64);
  EXPECT_EQ(ask({{at, 16, true}, {{at.value + 32}, 16, true}}), 32);
  EXPECT_EQ(driver_.bytes_at({at.value + 16}, 16), std::string(16, '\0'));
  EXPECT_EQ(driver_.bytes_at({at.value + 48}, 16), std::string(16, '\0'));
}

TEST_F(RngTest, ALargeRequestIsAnsweredInPart) {
  driver_.start(1);
  EXPECT_EQ(ask({{driver_.allocate(1 << 20), 1 << 20, true}}), static_cast<int>(kMaxRandomBytesPerRequest));
}

TEST_F(RngTest, AReadableBufferGetsNothing) {
  driver_.start(1);
  EXPECT_EQ(ask({{driver_.allocate(64), 64, false}}), 0);
}

TEST_F(RngTest, ABufferOutsideOfRamBreaksTheQueueOnly) {
  driver_.start(1);
  EXPECT_EQ(ask({{{DriverFake::kRamBytes - 8}, 64, true}}), -1);
  EXPECT_TRUE(driver_.needs_reset());
  driver_.start(1);
  EXPECT_EQ(ask({{driver_.allocate(64), 64, true}}), 64);
}

TEST_F(RngTest, WorksAfterAPause) {
  driver_.start(1);
  ASSERT_TRUE(driver_.transport().quiesce(deadline_after(std::chrono::seconds(1))));
  EXPECT_EQ(ask({{driver_.allocate(64), 64, true}}), -1);
  driver_.transport().resume();
  EXPECT_EQ(driver_.take_used(0)->written, 64u);
}

}  // namespace
}  // namespace ramet::vmm
