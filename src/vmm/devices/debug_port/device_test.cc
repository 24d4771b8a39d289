#include "vmm/devices/debug_port/device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace ramet::vmm {
namespace {

uint32_t in(DebugPort& port) {
  uint32_t word = 0;
  port.bus_read(0, std::as_writable_bytes(std::span(&word, 1)));
  return word;
}

TEST(DebugPort, ReportsWordsInOrder) {
  std::vector<uint32_t> reported;
  DebugPort port([&](uint32_t word) { reported.push_back(word); });
  for (uint32_t word : {7u, 8u}) port.bus_write(0, std::as_bytes(std::span(&word, 1)));
  EXPECT_EQ(reported, (std::vector<uint32_t>{7, 8}));
}

TEST(DebugPort, GivesPushedWordsInOrder) {
  DebugPort port([](uint32_t) {});
  ASSERT_TRUE(port.push(std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(in(port), 1u);
  EXPECT_EQ(in(port), 2u);
}

TEST(DebugPort, KeepsSoManyWordsOnly) {
  DebugPort port([](uint32_t) {});
  ASSERT_TRUE(port.push(std::vector<uint32_t>(DebugPort::kMaxWaitingWords - 1, 1)));
  EXPECT_EQ(port.push(std::vector<uint32_t>{2, 3}).error().kind(), ErrorKind::kNoSpace);
  EXPECT_TRUE(port.push(std::vector<uint32_t>{2}));
  EXPECT_EQ(in(port), 1u);
  EXPECT_TRUE(port.push(std::vector<uint32_t>{3}));
}

TEST(DebugPort, WaitsForAWord) {
  DebugPort port([](uint32_t) {});
  uint32_t got = 0;
  std::thread vcpu([&] { got = in(port); });
  ASSERT_TRUE(port.push(std::vector<uint32_t>{3}));
  vcpu.join();
  EXPECT_EQ(got, 3u);
}

void out(DebugPort& port, uint32_t word) { port.bus_write(0, std::as_bytes(std::span(&word, 1))); }

TEST(DebugPort, ParkingEndsTheWaitWithZeroAndKeepsTheWords) {
  DebugPort port([](uint32_t) {});
  uint32_t got = 1;
  std::thread vcpu([&] { got = in(port); });
  port.interrupt();
  vcpu.join();
  EXPECT_EQ(got, 0u);
  ASSERT_TRUE(port.push(std::vector<uint32_t>{4}));
  port.resume();
  EXPECT_EQ(in(port), 4u);
}

TEST(DebugPort, FirstStartOwesNoZero) {
  DebugPort port([](uint32_t) {});
  ASSERT_TRUE(port.push(std::vector<uint32_t>{4}));
  port.resume();
  EXPECT_EQ(in(port), 4u);
}

TEST(DebugPort, ForkedChildIsOwedItsZeroAlsoAfterResume) {
  DebugPort port([](uint32_t) {});
  ASSERT_TRUE(port.push(std::vector<uint32_t>{4}));
  port.interrupt();
  port.after_fork();
  port.resume();
  EXPECT_EQ(in(port), 0u);
  EXPECT_EQ(in(port), 4u);
}

TEST(DebugPort, GuestParkedElsewhereReadsOneZeroAfterwards) {
  DebugPort port([](uint32_t) {});
  ASSERT_TRUE(port.push(std::vector<uint32_t>{4}));
  out(port, 1);
  port.interrupt();
  port.resume();
  EXPECT_EQ(in(port), 0u);
  EXPECT_EQ(in(port), 4u);
}

TEST(DebugPort, GuestParkedAfterItAnsweredAZeroReadsAnother) {
  DebugPort port([](uint32_t) {});
  ASSERT_TRUE(port.push(std::vector<uint32_t>{4}));
  port.interrupt();
  EXPECT_EQ(in(port), 0u);
  out(port, 1);
  port.resume();
  EXPECT_EQ(in(port), 0u);
  EXPECT_EQ(in(port), 4u);
}

TEST(DebugPort, ForkedChildReadsOneZeroAndKeepsTheWords) {
  DebugPort port([](uint32_t) {});
  ASSERT_TRUE(port.push(std::vector<uint32_t>{5}));
  port.interrupt();
  port.after_fork();
  EXPECT_EQ(in(port), 0u);
  EXPECT_EQ(in(port), 5u);
}

TEST(DebugPort, ForkedChildThatWasWaitingReadsNoSecondZero) {
  DebugPort port([](uint32_t) {});
  port.interrupt();
  EXPECT_EQ(in(port), 0u);
  ASSERT_TRUE(port.push(std::vector<uint32_t>{5}));
  port.after_fork();
  EXPECT_EQ(in(port), 5u);
}

TEST(DebugPort, IgnoresOtherSizesAndOffsets) {
  bool reported = false;
  DebugPort port([&](uint32_t) { reported = true; });
  uint8_t byte = 1;
  port.bus_write(0, std::as_bytes(std::span(&byte, 1)));
  port.bus_read(0, std::as_writable_bytes(std::span(&byte, 1)));
  EXPECT_FALSE(reported);
  EXPECT_EQ(byte, 0xff);
}

}  // namespace
}  // namespace ramet::vmm
