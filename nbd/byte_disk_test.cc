#include "byte_disk.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "image/overlay_stack.h"
#include "image/testing/memory_target.h"
#include "image/testing/patterns.h"

namespace ramet::nbd {
namespace {

using image::kBlockBytes;
using image::testing::MemoryTarget;
using image::testing::PatternBase;

constexpr uint64_t kBlocks = 16;
constexpr uint64_t kBytes = kBlocks * kBlockBytes;

std::vector<std::byte> noise(std::mt19937_64& rng, uint64_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::byte& b : out) b = static_cast<std::byte>(rng());
  return out;
}

std::unique_ptr<ByteDisk> make_disk() {
  const image::testing::CrashOverlay files;
  return std::make_unique<ByteDisk>(image::OverlayStack::open(std::make_unique<PatternBase>(kBlocks), kBlocks, {},
                                                              image::testing::writable_files(files),
                                                              image::HostHistory::kSameBoot)
                                        .value());
}

std::vector<std::byte> all_of(const ByteDisk& disk) {
  std::vector<std::byte> bytes(disk.size_bytes());
  EXPECT_TRUE(disk.read(0, bytes));
  return bytes;
}

TEST(ByteDisk, AgreesWithAnArrayAtAnyOffsetAndLength) {
  const std::unique_ptr<ByteDisk> disk = make_disk();
  std::vector<std::byte> model = all_of(*disk);
  std::mt19937_64 rng(5);
  for (int i = 0; i < 3000; i++) {
    const uint64_t grain = std::array<uint64_t, 4>{1, 512, 4096, 100}[rng() % 4];
    const uint64_t offset = rng() % (kBytes / grain) * grain;
    const uint64_t length = std::min(rng() % (3 * kBlockBytes / grain) * grain, kBytes - offset);
    const auto at = model.begin() + static_cast<ptrdiff_t>(offset);
    switch (rng() % 3) {
      case 0: {
        const std::vector<std::byte> bytes = noise(rng, length);
        ASSERT_TRUE(disk->write(offset, bytes));
        std::copy(bytes.begin(), bytes.end(), at);
        break;
      }
      case 1:
        ASSERT_TRUE(disk->zero(offset, length));
        std::fill_n(at, length, std::byte{0});
        break;
      default: {
        std::vector<std::byte> bytes(length);
        ASSERT_TRUE(disk->read(offset, bytes));
        ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), at)) << offset << "+" << length;
      }
    }
  }
  EXPECT_EQ(all_of(*disk), model);
}

TEST(ByteDisk, DiscardsWholeBlocksAndLeavesTheEnds) {
  const std::unique_ptr<ByteDisk> disk = make_disk();
  std::vector<std::byte> model = all_of(*disk);
  ASSERT_TRUE(disk->discard(kBlockBytes + 1, 3 * kBlockBytes));
  std::fill_n(model.begin() + 2 * kBlockBytes, 2 * kBlockBytes, std::byte{0});
  EXPECT_EQ(all_of(*disk), model);
  const ByteDisk::Stretch zero = disk->content_at(2 * kBlockBytes + 100, kBytes - 2 * kBlockBytes - 100);
  EXPECT_TRUE(zero.zero);
  EXPECT_EQ(zero.bytes, 2 * kBlockBytes - 100);
  EXPECT_FALSE(disk->content_at(kBlockBytes, 10).zero);
  EXPECT_EQ(disk->content_at(kBlockBytes, 10).bytes, 10u);
}

TEST(ByteDisk, NothingOutsideTheDisk) {
  const std::unique_ptr<ByteDisk> disk = make_disk();
  std::vector<std::byte> bytes(2);
  EXPECT_EQ(disk->read(kBytes - 1, bytes).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(disk->write(~0ull, bytes).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(disk->zero(kBytes, 1).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(disk->discard(1, ~0ull).error().kind(), ErrorKind::kInvalid);
}

// Reads take their time after they have looked, so that a write has every chance to come between.
class SlowTarget final : public MemoryTarget {
 public:
  using MemoryTarget::MemoryTarget;
  Result<bool> read(image::BlockRange range, std::span<const iovec> to, image::Wait wait) const override {
    const Result<bool> done = MemoryTarget::read(range, to, wait);
    has_read = true;
    std::this_thread::sleep_for(pause);
    return done;
  }
  mutable std::atomic<bool> has_read = false;
  std::chrono::milliseconds pause{0};
};

// Eight writers, each with bytes of its own in the same two blocks.
TEST(ByteDisk, PartsOfOneBlockWrittenAtOnceAreAllThere) {
  auto target = std::make_unique<SlowTarget>(kBlocks);
  target->pause = std::chrono::milliseconds(1);
  ByteDisk disk(std::move(target));
  constexpr uint64_t kPart = 2 * kBlockBytes / 8;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; t++)
    threads.emplace_back([&, t] {
      std::vector<std::byte> mine(kPart), seen(kPart);
      for (int round = 1; round <= 20; round++) {
        EXPECT_TRUE(disk.read(t * kPart, seen));
        EXPECT_EQ(mine, seen) << "writer " << t << " before round " << round;
        std::memset(mine.data(), static_cast<int>(t * 31 + static_cast<uint64_t>(round)), kPart);
        EXPECT_TRUE(disk.write(t * kPart, mine));
      }
    });
  for (std::thread& t : threads) t.join();
}

TEST(ByteDisk, AWholeBlockIsNotUndoneByAPartThatBeganEarlier) {
  auto owned = std::make_unique<SlowTarget>(kBlocks);
  owned->pause = std::chrono::milliseconds(100);
  const SlowTarget& target = *owned;
  ByteDisk disk(std::move(owned));
  const std::vector<std::byte> part(10, std::byte{1}), whole(kBlockBytes, std::byte{2});
  std::thread partial([&] { EXPECT_TRUE(disk.write(5, part)); });
  while (!target.has_read) std::this_thread::yield();
  EXPECT_TRUE(disk.write(kBlockBytes, whole));  // other blocks do not wait
  EXPECT_TRUE(disk.write(0, whole));
  partial.join();
  std::vector<std::byte> seen(kBlockBytes);
  ASSERT_TRUE(disk.read(0, seen));
  EXPECT_EQ(seen, whole);
}

TEST(ByteDisk, ErrorsOfTheTargetComeThrough) {
  auto owned = std::make_unique<MemoryTarget>(kBlocks);
  owned->failing = true;
  ByteDisk disk(std::move(owned));
  std::vector<std::byte> bytes(kBlockBytes);
  EXPECT_EQ(disk.read(0, bytes).error().kind(), ErrorKind::kIo);
  EXPECT_EQ(disk.write(0, bytes).error().kind(), ErrorKind::kNoSpace);
  EXPECT_EQ(disk.write(1, bytes).error().kind(), ErrorKind::kIo);
  EXPECT_EQ(disk.flush().error().kind(), ErrorKind::kIo);
}

}  // namespace
}  // namespace ramet::nbd
