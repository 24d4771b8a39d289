#include "image/block_map.h"

#include <gtest/gtest.h>

#include <random>

namespace ramet::image {
namespace {

TEST(BlockMap, BeginsWithOneRunOfSlotZero) {
  const BlockMap map(3 * kChunkBlocks + 5);
  const BlockMap::Run run = map.run_at({0, 3 * kChunkBlocks + 5});
  EXPECT_EQ(run.range, (BlockRange{0, 3 * kChunkBlocks + 5}));
  EXPECT_EQ(run.slot, 0);
}

TEST(BlockMap, RunsCrossChunks) {
  BlockMap map(3 * kChunkBlocks);
  map.set({kChunkBlocks - 1, kChunkBlocks + 2}, 7);
  EXPECT_EQ(map.run_at({kChunkBlocks - 1, 2 * kChunkBlocks}).range.count, kChunkBlocks + 2);
  EXPECT_EQ(map.run_at({0, 3 * kChunkBlocks}).range.count, kChunkBlocks - 1);
  EXPECT_EQ(map.count(7), kChunkBlocks + 2);
}

TEST(BlockMap, AgreesWithAPlainArrayUnderRandomChanges) {
  std::mt19937_64 rng(1);
  const uint64_t blocks = 2 * kChunkBlocks + 100;
  BlockMap map(blocks);
  std::vector<Slot> model(blocks, 0);
  for (int i = 0; i < 3000; i++) {
    BlockRange range{rng() % blocks, 0};
    range.count = 1 + rng() % std::min<uint64_t>(blocks - range.first, i % 50 == 0 ? blocks : 40);
    const Slot slot = static_cast<Slot>(rng() % 4);
    uint64_t changed = 0, expected = 0;
    for (uint64_t b = range.first; b < range.end(); b++) expected += model[b] != slot;
    map.set(range, slot, [&](const BlockMap::Run& run) { changed += run.range.count; });
    std::fill_n(model.begin() + static_cast<ptrdiff_t>(range.first), range.count, slot);
    ASSERT_EQ(changed, expected);
  }
  map.rename(3, 2);
  std::replace(model.begin(), model.end(), Slot{3}, Slot{2});
  for (uint64_t b = 0; b < blocks;) {
    const BlockMap::Run run = map.run_at({b, blocks - b});
    for (uint64_t i = 0; i < run.range.count; i++) ASSERT_EQ(model[b + i], run.slot) << b + i;
    b += run.range.count;
  }
  for (int slot = 0; slot < 4; slot++)
    EXPECT_EQ(map.count(static_cast<Slot>(slot)), static_cast<uint64_t>(std::count(model.begin(), model.end(), slot)));
}

}  // namespace
}  // namespace ramet::image
