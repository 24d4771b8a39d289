// What is in the table: every literal, each frame until it is taken, and no more memory than was promised.
#include "chunk/literal_table.h"

#include <gtest/gtest.h>
#include <malloc.h>

namespace ramet::chunk {
namespace {

BlockPrint print(uint64_t n) {
  BlockPrint p;
  n *= 0x9e3779b97f4a7c15;
  std::copy_n(reinterpret_cast<const std::byte*>(&n), sizeof n, p.bytes.begin());
  return p;
}

// Frames from `first` on, with prints that follow each other.
PackTail frames(FrameId first, size_t count, uint64_t first_print) {
  PackTail tail;
  for (size_t f = 0; f < count; f++) {
    tail.frames.push_back({.id = first + f});
    std::vector<BlockPrint>& prints = tail.prints.emplace_back();
    for (uint32_t b = 0; b < kFrameBlocks; b++) prints.push_back(print(first_print + f * kFrameBlocks + b));
  }
  return tail;
}

TEST(LiteralTable, FindsEveryBlock) {
  LiteralTable table;
  table.add(frames(100, 50, 1));
  table.append(7, print(5000));
  for (uint32_t i = 0; i < 50 * kFrameBlocks; i++)
    ASSERT_EQ(table.find(print(1 + i)), (BlockRef{100 + i / kFrameBlocks, i % kFrameBlocks}));
  EXPECT_EQ(table.find(print(5000)), (BlockRef{7, 0}));
  EXPECT_EQ(table.find(print(0)), std::nullopt);
}

TEST(LiteralTable, WhatWasTakenIsGoneAndItsPlaceIsUsedAgain) {
  LiteralTable table;
  table.add(frames(1, 3, 1));
  std::vector<BlockPrint> taken = table.take(2);
  EXPECT_EQ(taken.size(), kFrameBlocks);
  EXPECT_EQ(table.find(taken[5]), std::nullopt);
  EXPECT_EQ(table.print_of({2, 5}), std::nullopt);
  table.add(frames(9, 1, 1000));
  EXPECT_EQ(table.find(print(1005)), (BlockRef{9, 5}));
  EXPECT_EQ(table.find(taken[5]), std::nullopt);
  table.put_back(2, taken);
  EXPECT_EQ(table.find(taken[5]), (BlockRef{2, 5}));
  EXPECT_EQ(table.frames(), 4u);
  EXPECT_TRUE(table.take(77).empty());
}

TEST(LiteralTable, OfEqualLiteralsOneIsFoundAndTheOtherCanGo) {
  LiteralTable table;
  table.add(frames(1, 1, 1));
  table.add(frames(2, 1, 1));
  EXPECT_EQ(table.find(print(3)), (BlockRef{1, 2}));
  table.take(2);
  EXPECT_EQ(table.find(print(3)), (BlockRef{1, 2}));
}

TEST(LiteralTable, NeighboursFollowTheNumbersOfFrames) {
  LiteralTable table;
  table.add(frames(5, 1, 1));
  table.add(frames(2, 1, 100));
  EXPECT_EQ(table.next({2, kFrameBlocks - 1}), (BlockRef{5, 0}));
  EXPECT_EQ(table.previous({5, 0}), (BlockRef{2, kFrameBlocks - 1}));
  EXPECT_EQ(table.next({5, kFrameBlocks - 1}), std::nullopt);
  EXPECT_EQ(table.previous({2, 0}), std::nullopt);
}

TEST(LiteralTable, AGibibyteOfLiteralsTakesLessThanEightMebibytes) {
  constexpr size_t kFrames = (1u << 30) / (kFrameBlocks * kBlockBytes);
  LiteralTable table;
  const auto used = [] {
    const struct mallinfo2 info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const size_t before = used();
  for (size_t f = 0; f < kFrames; f++) table.add(frames(f, 1, f * kFrameBlocks));
  EXPECT_LT(used() - before, 8u << 20);
  EXPECT_EQ(table.frames(), kFrames);
}

}  // namespace
}  // namespace ramet::chunk
