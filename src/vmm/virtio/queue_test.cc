#include "vmm/virtio/queue.h"

#include <gtest/gtest.h>

namespace ramet::vmm {
namespace {

constexpr uint64_t kRam = 1 << 20;
constexpr uint16_t kSize = 8;
constexpr GuestAddr kDescriptors{0x1000}, kAvailable{0x2000}, kUsed{0x3000}, kTable{0x4000}, kBuffer{0x8000};

class QueueTest : public ::testing::Test {
 protected:
  QueueTest() { enable(1ull << VIRTIO_RING_F_INDIRECT_DESC); }
  void enable(uint64_t features) { ASSERT_TRUE(queue.enable({kSize, kDescriptors, kAvailable, kUsed}, features, {})); }
  template <class T>
  void put(uint64_t at, T value) {
    ASSERT_TRUE(memory.write_object({at}, value));
  }
  template <class T>
  T get(uint64_t at) {
    T value{};
    EXPECT_TRUE(memory.read_object({at}, value));
    return value;
  }
  void describe(uint16_t index, vring_desc d, GuestAddr table = kDescriptors) { put(table.value + 16ull * index, d); }
  void offer(uint16_t head) {
    put<uint16_t>(kAvailable.value + 4 + 2ull * (available_ % kSize), head);
    put<uint16_t>(kAvailable.value + 2, ++available_);
  }
  void expect_broken() {
    offer(0);
    EXPECT_EQ(queue.pop(chain), Queue::Pop::kBroken);
    EXPECT_EQ(queue.pop(chain), Queue::Pop::kBroken);
    EXPECT_EQ(told_broken, 1);
  }

  std::vector<std::byte> ram = std::vector<std::byte>(kRam);
  GuestMemory memory{ram.data(), kRam};
  int told_broken = 0;
  Queue queue{memory, [this] { told_broken++; }};
  DescriptorChain chain;
  uint16_t available_ = 0;
};

TEST_F(QueueTest, GivesAChainOutAndBack) {
  describe(0, {kBuffer.value, 16, VRING_DESC_F_NEXT, 3});
  describe(3, {kBuffer.value + 100, 50, VRING_DESC_F_WRITE, 0});
  EXPECT_EQ(queue.pop(chain), Queue::Pop::kEmpty);
  offer(0);
  ASSERT_EQ(queue.pop(chain), Queue::Pop::kChain);
  EXPECT_EQ(chain.head(), 0);
  EXPECT_EQ(chain.readable_bytes(), 16u);
  EXPECT_EQ(chain.writable_bytes(), 50u);
  EXPECT_EQ(queue.pop(chain), Queue::Pop::kEmpty);
  queue.push_used(0, 7);
  EXPECT_TRUE(queue.needs_interrupt());
  EXPECT_FALSE(queue.needs_interrupt());
  EXPECT_EQ(get<uint16_t>(kUsed.value + 2), 1);
  EXPECT_EQ(get<uint32_t>(kUsed.value + 8), 7u);
}

TEST_F(QueueTest, UndoMakesTheChainTheNextOneAgain) {
  describe(0, {kBuffer.value, 16, 0, 0});
  offer(0);
  ASSERT_EQ(queue.pop(chain), Queue::Pop::kChain);
  queue.undo_pop();
  EXPECT_EQ(queue.position().in_flight, 0);
  EXPECT_EQ(queue.pop(chain), Queue::Pop::kChain);
}

TEST_F(QueueTest, ReadsAndWritesAcrossSegments) {
  describe(0, {kBuffer.value, 3, VRING_DESC_F_NEXT, 1});
  describe(1, {kBuffer.value + 100, 5, VRING_DESC_F_NEXT, 2});
  describe(2, {kBuffer.value + 200, 4, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 4});
  describe(4, {kBuffer.value + 300, 4, VRING_DESC_F_WRITE, 0});
  for (uint64_t i = 0; i < 3; i++) put<char>(kBuffer.value + i, "abc"[i]);
  for (uint64_t i = 0; i < 5; i++) put<char>(kBuffer.value + 100 + i, "defgh"[i]);
  offer(0);
  ASSERT_EQ(queue.pop(chain), Queue::Pop::kChain);
  char out[5] = {};
  ASSERT_TRUE(chain.read(memory, 2, std::as_writable_bytes(std::span(out, 4))));
  EXPECT_STREQ(out, "cdef");
  EXPECT_FALSE(chain.read(memory, 5, std::as_writable_bytes(std::span(out, 4))));
  ASSERT_TRUE(chain.write(memory, 3, std::as_bytes(std::span("XY", 2))));
  EXPECT_EQ(get<char>(kBuffer.value + 203), 'X');
  EXPECT_EQ(get<char>(kBuffer.value + 300), 'Y');
  EXPECT_FALSE(chain.write(memory, 7, std::as_bytes(std::span("XY", 2))));
}

TEST_F(QueueTest, FollowsAnIndirectTable) {
  describe(0, {kTable.value, 32, VRING_DESC_F_INDIRECT, 0});
  describe(0, {kBuffer.value, 10, VRING_DESC_F_NEXT, 1}, kTable);
  describe(1, {kBuffer.value, 20, VRING_DESC_F_WRITE, 0}, kTable);
  offer(0);
  ASSERT_EQ(queue.pop(chain), Queue::Pop::kChain);
  EXPECT_EQ(chain.readable_bytes(), 10u);
  EXPECT_EQ(chain.writable_bytes(), 20u);
}

TEST_F(QueueTest, AnIndexPastTheTableIsBroken) {
  describe(0, {kBuffer.value, 1, VRING_DESC_F_NEXT, kSize});
  expect_broken();
}
TEST_F(QueueTest, ALoopIsBroken) {
  describe(0, {kBuffer.value, 1, VRING_DESC_F_NEXT, 1});
  describe(1, {kBuffer.value, 1, VRING_DESC_F_NEXT, 0});
  expect_broken();
}
TEST_F(QueueTest, ALoopOfEmptyDescriptorsIsBroken) {
  describe(0, {kBuffer.value, 0, VRING_DESC_F_NEXT, 0});
  expect_broken();
}
TEST_F(QueueTest, MemoryThatIsNotRamIsBroken) {
  describe(0, {kRam - 4, 8, 0, 0});
  expect_broken();
}
TEST_F(QueueTest, AWrappingAddressIsBroken) {
  describe(0, {~0ull - 3, 8, 0, 0});
  expect_broken();
}
TEST_F(QueueTest, AReadablePartAfterAWritableOneIsBroken) {
  describe(0, {kBuffer.value, 1, VRING_DESC_F_WRITE | VRING_DESC_F_NEXT, 1});
  describe(1, {kBuffer.value, 1, 0, 0});
  expect_broken();
}
TEST_F(QueueTest, AnIndirectTableInsideOfAnotherIsBroken) {
  describe(0, {kTable.value, 16, VRING_DESC_F_INDIRECT, 0});
  describe(0, {kTable.value, 16, VRING_DESC_F_INDIRECT, 0}, kTable);
  expect_broken();
}
TEST_F(QueueTest, AnIndirectTableThatGoesOnIsBroken) {
  describe(0, {kTable.value, 16, VRING_DESC_F_INDIRECT | VRING_DESC_F_NEXT, 1});
  expect_broken();
}
TEST_F(QueueTest, AnIndirectTableOfAnOddLengthIsBroken) {
  describe(0, {kTable.value, 24, VRING_DESC_F_INDIRECT, 0});
  expect_broken();
}
TEST_F(QueueTest, AnEmptyIndirectTableIsBroken) {
  describe(0, {kTable.value, 0, VRING_DESC_F_INDIRECT, 0});
  expect_broken();
}
TEST_F(QueueTest, AHugeIndirectTableIsBroken) {
  describe(0, {kTable.value, 16 * (Queue::kMaxIndirectDescriptors + 1), VRING_DESC_F_INDIRECT, 0});
  expect_broken();
}
TEST_F(QueueTest, IndirectWithoutTheFeatureIsBroken) {
  enable(0);
  describe(0, {kTable.value, 16, VRING_DESC_F_INDIRECT, 0});
  expect_broken();
}
TEST_F(QueueTest, MoreAvailableThanTheRingHoldsIsBroken) {
  available_ = kSize;
  expect_broken();
}
TEST_F(QueueTest, AHeadPastTheTableIsBroken) {
  offer(kSize);
  EXPECT_EQ(queue.pop(chain), Queue::Pop::kBroken);
}
TEST_F(QueueTest, MoreInFlightThanTheRingHoldsIsBroken) {
  describe(0, {kBuffer.value, 1, 0, 0});
  for (int i = 0; i < kSize; i++) {
    offer(0);
    ASSERT_EQ(queue.pop(chain), Queue::Pop::kChain);
  }
  expect_broken();
}

TEST_F(QueueTest, RingsOutsideOfRamOrMisalignedAreRefused) {
  EXPECT_FALSE(queue.enable({kSize, {0x1008}, kAvailable, kUsed}, 0, {}));
  EXPECT_FALSE(queue.enable({kSize, kDescriptors, {0x2001}, kUsed}, 0, {}));
  EXPECT_FALSE(queue.enable({kSize, kDescriptors, kAvailable, {0x3002}}, 0, {}));
  EXPECT_FALSE(queue.enable({kSize, kDescriptors, kAvailable, {kRam - 64}}, 0, {}));
  EXPECT_FALSE(queue.enable({7, kDescriptors, kAvailable, kUsed}, 0, {}));
  EXPECT_FALSE(queue.enable({0, kDescriptors, kAvailable, kUsed}, 0, {}));
  EXPECT_EQ(queue.pop(chain), Queue::Pop::kEmpty);
}

TEST_F(QueueTest, TheDriverCanSuppressInterrupts) {
  describe(0, {kBuffer.value, 1, 0, 0});
  put<uint16_t>(kAvailable.value, VRING_AVAIL_F_NO_INTERRUPT);
  offer(0);
  ASSERT_EQ(queue.pop(chain), Queue::Pop::kChain);
  queue.push_used(0, 0);
  EXPECT_FALSE(queue.needs_interrupt());
}

TEST_F(QueueTest, WithEventIndexesBothSidesSayWhatTheyWaitFor) {
  enable(1ull << VIRTIO_RING_F_EVENT_IDX);
  describe(0, {kBuffer.value, 1, 0, 0});
  put<uint16_t>(kAvailable.value + 4 + 2 * kSize, 1);  // used_event: tell me about the second one
  const auto serve = [&] {
    offer(0);
    ASSERT_EQ(queue.pop(chain), Queue::Pop::kChain);
    queue.push_used(0, 0);
  };
  serve();
  EXPECT_TRUE(queue.needs_interrupt());  // the first time always
  serve();
  EXPECT_TRUE(queue.needs_interrupt());
  serve();
  EXPECT_FALSE(queue.needs_interrupt());
  EXPECT_EQ(queue.pop(chain), Queue::Pop::kEmpty);
  EXPECT_EQ(get<uint16_t>(kUsed.value + 4 + 8 * kSize), 3);  // avail_event: kick me for the fourth
}

TEST_F(QueueTest, IndexesWrapAround) {
  ASSERT_TRUE(queue.enable({kSize, kDescriptors, kAvailable, kUsed}, 0, {.next_available = 0xfffe, .next_used = 0xfffe}));
  available_ = 0xfffe;
  describe(0, {kBuffer.value, 1, 0, 0});
  for (int i = 0; i < 5; i++) {
    offer(0);
    ASSERT_EQ(queue.pop(chain), Queue::Pop::kChain);
    queue.push_used(0, 0);
  }
  EXPECT_EQ(get<uint16_t>(kUsed.value + 2), 3);
}

}  // namespace
}  // namespace ramet::vmm
