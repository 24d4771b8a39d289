// Descriptors that are read by many threads while they are taken away and their numbers, and slots, go to other chunks.
#include "image/held_chunks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/file.h"

namespace ramet::image {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

UniqueFd file_with(uint64_t number) {
  UniqueFd file = make_memfd("chunk", 0).value();
  EXPECT_TRUE(pwrite_all(file.get(), std::as_bytes(std::span(&number, 1)), 0));
  return file;
}
// nullopt: not held.
std::optional<uint64_t> number_in(const HeldChunks& held, uint64_t chunk) {
  const HeldChunks::Pin pin = held.find(chunk);
  if (!pin) return std::nullopt;
  uint64_t number = ~0ull;
  EXPECT_TRUE(pread_exact(pin.fd(), std::as_writable_bytes(std::span(&number, 1)), 0));
  return number;
}

TEST(HeldChunks, WhatIsAddedIsFoundUntilItIsRemoved) {
  HeldChunks held(10 * kChunkBlocks);
  EXPECT_TRUE(held.add(3, file_with(3)));
  EXPECT_FALSE(held.add(3, file_with(33)));
  EXPECT_EQ(number_in(held, 3), 3u);
  EXPECT_EQ(number_in(held, 4), std::nullopt);
  EXPECT_TRUE(held.remove(3));
  EXPECT_FALSE(held.remove(3));
  EXPECT_EQ(number_in(held, 3), std::nullopt);
}

TEST(HeldChunks, TrimClosesTheLeastRecentlyUsedButNoneThatIsRead) {
  HeldChunks held(10 * kChunkBlocks);
  for (const uint64_t chunk : {5, 1, 7, 2}) EXPECT_TRUE(held.add(chunk, file_with(chunk)));
  EXPECT_EQ(number_in(held, 5), 5u);
  EXPECT_THAT(held.trim(3), ElementsAre(1));
  const HeldChunks::Pin pin = held.find(7);
  EXPECT_THAT(held.trim(0), UnorderedElementsAre(2, 5));
  EXPECT_THAT(held.held(), ElementsAre(7));
}

TEST(HeldChunks, OnlyWholeChunksAreZero) {
  HeldChunks held(3 * kChunkBlocks + 5);
  held.mark_zero({1, 2 * kChunkBlocks});
  EXPECT_FALSE(held.is_zero(0));
  EXPECT_TRUE(held.is_zero(1));
  EXPECT_FALSE(held.is_zero(2));
  held.mark_zero({3 * kChunkBlocks, 5});  // the last one is short
  EXPECT_TRUE(held.is_zero(3));
}

TEST(HeldChunks, AReaderNeverReadsAnotherChunk) {
  constexpr uint64_t kChunks = 40;
  HeldChunks held(kChunks * kChunkBlocks);
  std::atomic<bool> done = false;
  std::vector<std::thread> readers;
  for (unsigned seed = 0; seed < 3; seed++)
    readers.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      while (!done) {
        const uint64_t chunk = random() % kChunks;
        const std::optional<uint64_t> number = number_in(held, chunk);
        ASSERT_TRUE(!number || *number == chunk) << *number << " for " << chunk;
      }
    });
  std::mt19937_64 random(99);
  for (int i = 0; i < 5000; i++) {
    const uint64_t chunk = random() % kChunks;
    held.add(chunk, file_with(chunk));
    if (i % 3 == 0) held.remove(random() % kChunks);
    held.trim(4);
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  held.trim(0);
  EXPECT_THAT(held.held(), IsEmpty());
}

}  // namespace
}  // namespace ramet::image
