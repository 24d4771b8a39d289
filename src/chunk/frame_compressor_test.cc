// Frames in work come back in order, whole, whatever the number of threads; and a store made with threads is like one without.
#include "chunk/frame_compressor.h"

#include <gtest/gtest.h>

#include <thread>

#include "chunk/store.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/memory_storage.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::chunk {
namespace {

using testing::blocks;
using testing::Bytes;

FrameCompressor::Frame frame_number(uint64_t n) {
  Bytes plain = blocks(n * 100, 1 + n % kFrameBlocks);
  std::vector<Digest> digests = block_digests(plain);
  return {n, std::move(plain), std::move(digests), {}, {}};
}

class FrameCompressorTest : public ::testing::TestWithParam<unsigned> {};

TEST_P(FrameCompressorTest, GivesBackEveryFrameInOrder) {
  FrameCompressor compressor(GetParam());
  FrameDecoder decoder;
  uint64_t next = 0;
  const auto check = [&](FrameCompressor::Frame frame) {
    const FrameCompressor::Frame expected = frame_number(next);
    ASSERT_EQ(frame.id, next++);
    Bytes plain(expected.plain.size());
    ASSERT_TRUE(decoder.decode(frame.entry, frame.stored_bytes(), plain));
    ASSERT_EQ(plain, expected.plain);
    compressor.give_back(std::move(frame));
  };
  for (uint64_t n = 0; n < 300; n++) {
    if (compressor.full()) check(*compressor.take(FrameCompressor::Wait::kYes));
    FrameCompressor::Frame frame = compressor.empty_frame();
    const FrameCompressor::Frame content = frame_number(n);
    ASSERT_TRUE(frame.plain.empty() && frame.blocks.empty());
    frame.id = n;
    frame.plain.assign(content.plain.begin(), content.plain.end());
    frame.blocks = content.blocks;
    compressor.add(std::move(frame));
    if (n % 7 == 0)
      if (const auto done = compressor.take(FrameCompressor::Wait::kNo)) check(*done);
  }
  while (const auto done = compressor.take(FrameCompressor::Wait::kYes)) check(*done);
  EXPECT_EQ(next, 300u);
}

TEST_P(FrameCompressorTest, MayBeDroppedWithFramesInWork) {
  FrameCompressor compressor(GetParam());
  for (uint64_t n = 0; n < FrameCompressor::kMaxInWork; n++) compressor.add(frame_number(n));
  EXPECT_TRUE(compressor.full());
}

INSTANTIATE_TEST_SUITE_P(Threads, FrameCompressorTest, ::testing::Values(0u, 1u, 4u));

// Prepared by one thread, put by another, compressed by three.
TEST(ParallelPut, StoresWhatOneThreadWouldStore) {
  const testing::TemporaryDirectory directory;
  auto packs = std::make_unique<testing::MemoryStorage>();
  const testing::MemoryStorage& storage = *packs;
  const std::unique_ptr<Store> store =
      Store::open(std::move(packs), directory.path + "/index.db", {.compress_threads = 3}).value();
  std::vector<Bytes> chunks;
  for (uint64_t n = 0; n < 12; n++) chunks.push_back(blocks(n * 500, 1000));  // each is half of the one before
  std::vector<std::optional<Prepared>> prepared(chunks.size());
  std::thread hasher([&] {
    for (size_t n = 0; n < chunks.size(); n++) prepared[n] = prepare(chunks[n]).value();
  });
  hasher.join();
  {
    Batch batch = store->begin();
    for (const std::optional<Prepared>& chunk : prepared) ASSERT_TRUE(batch.put(*chunk));
    ASSERT_TRUE(batch.commit());
  }
  EXPECT_EQ(storage.packs.size(), 1u);
  EXPECT_EQ(store->totals()->literal_blocks, 12u * 500 + 500);
  for (const Bytes& chunk : chunks) ASSERT_EQ(store->get(digest_of(chunk)).value(), chunk);
}

}  // namespace
}  // namespace ramet::chunk
