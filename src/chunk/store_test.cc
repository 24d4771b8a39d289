// The store as its users see it: what was committed is there, once, whatever else happens; what was not, is not.
#include "chunk/store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include "base/file.h"
#include "chunk/testing/memory_storage.h"
#include "chunk/testing/store_fixture.h"

namespace ramet::chunk {
namespace {

using testing::blocks;
using testing::Bytes;
using testing::MemoryStorage;
using testing::set_block;
using testing::TemporaryDirectory;

class StoreTest : public testing::StoreFixture {};

TEST_F(StoreTest, GivesBackWhatWasPut) {
  const Bytes chunk = blocks(1, 200);
  const Digest digest = put(chunk);
  EXPECT_EQ(digest, digest_of(chunk));
  EXPECT_EQ(store_->get(digest).value(), chunk);
  reopen();
  EXPECT_EQ(store_->get(digest).value(), chunk);
  EXPECT_EQ(store_->get(digest_of(blocks(9, 1))).error().kind(), ErrorKind::kNotFound);
}

TEST_F(StoreTest, SomeBlocksOfAChunkCanBeRead) {
  Bytes chunk = blocks(1, 40);
  std::fill(chunk.begin() + 10 * kBlockBytes, chunk.begin() + 20 * kBlockBytes, std::byte{0});
  const Digest digest = put(chunk);
  for (const auto& [first, count] : {std::pair{0u, 1u}, {9u, 2u}, {12u, 3u}, {0u, 40u}, {39u, 1u}, {31u, 2u}}) {
    Bytes out(count * kBlockBytes, std::byte{0x55});
    ASSERT_TRUE(store_->read(digest, first, out));
    EXPECT_TRUE(std::equal(out.begin(), out.end(), chunk.begin() + first * static_cast<std::ptrdiff_t>(kBlockBytes)));
  }
  Bytes out(2 * kBlockBytes);
  EXPECT_EQ(store_->read(digest, 39, out).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(store_->read(digest, 0, std::span(out).first(100)).error().kind(), ErrorKind::kInvalid);
}

TEST_F(StoreTest, AChangedVersionOfAChunkIsLookedAtWhereItChanged) {
  const Bytes before = blocks(1, 20);
  const Digest digest = put(before);
  Bytes chunk;
  Prepared now = store_
                     ->get_prepared(digest,
                                    [&](size_t bytes) -> Result<std::span<std::byte>> {
                                      chunk.resize(bytes);
                                      return chunk;
                                    })
                     .value();
  EXPECT_EQ(now.name, digest);
  EXPECT_EQ(chunk, before);
  set_block(chunk, 3, 500);
  std::fill_n(chunk.begin() + 7 * kBlockBytes, kBlockBytes, std::byte{0});
  prepare_again(now, std::array{3u, 7u});
  EXPECT_EQ(now.name, digest_of(chunk));
  Batch batch = store_->begin();
  ASSERT_TRUE(batch.put(now, digest));
  ASSERT_TRUE(batch.commit());
  EXPECT_EQ(store_->get(*now.name).value(), chunk);

  // All of it zeros, and back.
  std::fill(chunk.begin(), chunk.end(), std::byte{0});
  Prepared zeros = prepared_zeros(chunk);
  EXPECT_EQ(zeros.name, prepare(chunk)->name);
  set_block(chunk, 19, 1);
  prepare_again(zeros, std::array{19u});
  EXPECT_EQ(zeros.name, digest_of(chunk));
  std::fill(chunk.begin(), chunk.end(), std::byte{0});
  prepare_again(zeros, std::array{19u});
  EXPECT_EQ(zeros.name, std::nullopt);
}

TEST_F(StoreTest, ZerosHaveNoNameAndTakeNoSpace) {
  Batch batch = store_->begin();
  EXPECT_EQ(batch.put(Bytes(16 << 20)).value(), std::nullopt);
  ASSERT_TRUE(batch.commit());
  EXPECT_EQ(stored_bytes(), 0u);
}

TEST_F(StoreTest, SizesOutsideTheLimitsAreRefused) {
  Batch batch = store_->begin();
  for (const size_t bytes : {size_t{0}, size_t{4095}, size_t{(16 << 20) + 4096}})
    EXPECT_EQ(batch.put(Bytes(bytes, std::byte{1})).error().kind(), ErrorKind::kInvalid) << bytes;
  EXPECT_TRUE(batch.put(blocks(1, 1)));  // and does not end the batch
  EXPECT_TRUE(batch.commit());
}

TEST_F(StoreTest, AKnownChunkCostsNothing) {
  put(blocks(1, 64));
  const uint64_t before = stored_bytes();
  put(blocks(1, 64));
  EXPECT_EQ(stored_bytes(), before);
  EXPECT_EQ(store_->totals()->chunks, 1u);
}

TEST_F(StoreTest, ImagesThatAreShiftedAgainstEachOtherShareTheirBlocks) {
  put(blocks(100, 128));
  reopen();  // the table comes from the packs' tails
  const uint64_t before = stored_bytes();
  Bytes shifted = blocks(5, 3);
  const Bytes same = blocks(100, 125);
  shifted.insert(shifted.end(), same.begin(), same.end());
  const Digest digest = put(shifted);
  EXPECT_LE(stored_bytes() - before, 4 * kBlockBytes + kPackAlignment);
  EXPECT_EQ(store_->get(digest).value(), shifted);
}

TEST_F(StoreTest, AChangedChunkCostsItsChangedBlocks) {
  Bytes chunk = blocks(1, 4096);
  const Digest before = put(chunk);
  const uint64_t bytes = stored_bytes();
  for (uint32_t i = 0; i < 20; i++) set_block(chunk, i * 200 + 7, 90000 + i);
  const Digest after = put(chunk, before);
  EXPECT_LE(stored_bytes() - bytes, 20 * kBlockBytes * 11 / 10);
  EXPECT_EQ(store_->get(after).value(), chunk);
}

TEST_F(StoreTest, ABlockThatRepeatsInAChunkIsStoredOnce) {
  Bytes chunk(300 * kBlockBytes);
  for (size_t i = 0; i < 300; i++) set_block(chunk, i, 5);
  const Digest digest = put(chunk);
  EXPECT_LE(stored_bytes(), 2 * kPackAlignment);
  EXPECT_EQ(store_->get(digest).value(), chunk);
}

TEST_F(StoreTest, OneBatchMayFillSeveralPacks) {
  Batch batch = store_->begin();
  std::vector<Digest> digests;
  for (uint64_t i = 0; i < 5; i++) digests.push_back(batch.put(blocks(i * 4096, 4096)).value().value());
  ASSERT_TRUE(batch.commit());
  EXPECT_EQ(store_->totals()->packs, 2u);
  for (uint64_t i = 0; i < 5; i++) EXPECT_EQ(store_->get(digests[i]).value(), blocks(i * 4096, 4096));
}

TEST_F(StoreTest, WhatIsNotCommittedIsNotThere) {
  {
    Batch batch = store_->begin();
    for (uint64_t i = 0; i < 5; i++) ASSERT_TRUE(batch.put(blocks(i * 4096, 4096)));  // one pack is written already
    EXPECT_EQ(pack_files(), 1u);
    EXPECT_FALSE(store_->has(digest_of(blocks(0, 4096))).value());
  }
  EXPECT_EQ(pack_files(), 0u);
  EXPECT_EQ(store_->totals()->packs, 0u);
  put(blocks(0, 8));  // nothing refers to what went away
  EXPECT_EQ(store_->get(digest_of(blocks(0, 8))).value(), blocks(0, 8));
}

TEST_F(StoreTest, BatchesMayRunSideBySide) {
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; t++)
    threads.emplace_back([this, t] {
      for (uint64_t i = 0; i < 10; i++) {
        Batch batch = store_->begin();
        EXPECT_TRUE(batch.put(blocks(i * 16, 48)));         // the same in all
        EXPECT_TRUE(batch.put(blocks(10000 * t + i, 20)));  // not the same
        EXPECT_TRUE(batch.commit());
      }
    });
  for (std::thread& t : threads) t.join();
  reopen();
  for (uint64_t t = 0; t < 4; t++)
    for (uint64_t i = 0; i < 10; i++) {
      EXPECT_EQ(store_->get(digest_of(blocks(i * 16, 48))).value(), blocks(i * 16, 48));
      EXPECT_EQ(store_->get(digest_of(blocks(10000 * t + i, 20))).value(), blocks(10000 * t + i, 20));
    }
}

// Chunks made of each other's pieces, each put with a parent, right or wrong, in batches of some.
TEST_F(StoreTest, GoesOnGivingBackEveryChunkOfAHistory) {
  std::mt19937 random(4);
  std::vector<Bytes> history = {blocks(0, 96)};
  std::vector<Digest> names = {put(history[0])};
  for (int round = 0; round < 30; round++) {
    std::optional<Batch> batch = store_->begin();
    for (int i = 0; i < 4; i++) {
      Bytes chunk = history[random() % history.size()];
      const Bytes& other = history[random() % history.size()];
      const size_t n = 1 + random() % 40, from = random() % (96 - n), to = random() % (96 - n);
      std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(from * kBlockBytes), n * kBlockBytes,
                  chunk.begin() + static_cast<std::ptrdiff_t>(to * kBlockBytes));
      if (random() % 2) set_block(chunk, random() % 96, random());
      if (random() % 4 == 0)
        std::fill_n(chunk.begin() + static_cast<std::ptrdiff_t>(random() % 90 * kBlockBytes), 3 * kBlockBytes, std::byte{0});
      names.push_back(batch->put(chunk, names[random() % names.size()]).value().value());
      history.push_back(std::move(chunk));
    }
    ASSERT_TRUE(batch->commit());
    batch.reset();
    if (round % 10 == 9) reopen();
  }
  for (size_t i = 0; i < history.size(); i++) ASSERT_EQ(store_->get(names[i]).value(), history[i]) << i;
}

// A process that commits and says so, killed at any moment.
TEST_F(StoreTest, KilledAtAnyMomentItKeepsWhatItSaidWasCommitted) {
  store_.reset();
  size_t told = 0;
  for (int round = 0; round < 15; round++) {
    Pipe pipe = make_pipe().value();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      reopen();
      for (uint64_t n = 1000 * static_cast<uint64_t>(round);; n++) {
        Batch batch = store_->begin();
        const bool done = batch.put(blocks(n, 30)).has_value() && batch.commit().has_value();
        if (!done || !write_all(pipe.write_end.get(), std::as_bytes(std::span(&n, 1)))) ::_exit(1);
      }
    }
    pipe.write_end.reset();
    uint64_t n = 0;
    const auto next_told = [&] {
      return read_exact(pipe.read_end.get(), std::as_writable_bytes(std::span(&n, 1))).has_value();
    };
    ASSERT_TRUE(next_told());  // it is at work, however busy the machine
    ::usleep(static_cast<useconds_t>(7'000 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    reopen();
    do {
      ASSERT_EQ(store_->get(digest_of(blocks(n, 30))).value(), blocks(n, 30)) << n;
      told++;
    } while (next_told());
    EXPECT_EQ(pack_files(), store_->totals()->packs) << "a pack that nobody knows";
    store_.reset();
  }
  EXPECT_GT(told, 15u) << "killed each time before it had committed twice";
}

class FaultTest : public ::testing::Test {
 protected:
  FaultTest() {
    std::unique_ptr<MemoryStorage> memory = std::make_unique<MemoryStorage>();
    memory_ = memory.get();
    store_ = Store::open(std::move(memory), directory_.path + "/index.db", {}).value();
  }
  TemporaryDirectory directory_;
  MemoryStorage* memory_ = nullptr;
  std::unique_ptr<Store> store_;
};

TEST_F(FaultTest, WithoutSpaceTheBatchFailsAndLeavesNothing) {
  {
    Batch batch = store_->begin();
    ASSERT_TRUE(batch.put(blocks(1, 100)));
    memory_->fail_writes = ErrorKind::kNoSpace;
    EXPECT_EQ(batch.commit().error().kind(), ErrorKind::kNoSpace);
    EXPECT_EQ(batch.put(blocks(1, 1)).error().kind(), ErrorKind::kConflict);
    EXPECT_EQ(batch.commit().error().kind(), ErrorKind::kConflict);
  }
  EXPECT_EQ(store_->totals()->chunks, 0u);
  memory_->fail_writes.reset();
  Batch batch = store_->begin();
  ASSERT_TRUE(batch.put(blocks(1, 100)));
  ASSERT_TRUE(batch.commit());
  EXPECT_EQ(store_->get(digest_of(blocks(1, 100))).value(), blocks(1, 100));
}

TEST_F(FaultTest, NoDamageEverReachesAReader) {
  const Bytes chunk = blocks(1, 3);
  Batch batch = store_->begin();
  const Digest digest = batch.put(chunk).value().value();
  ASSERT_TRUE(batch.commit());
  ASSERT_EQ(memory_->packs.size(), 1u);
  Bytes& pack = memory_->packs.begin()->second;
  for (size_t i = 0; i < pack.size(); i++) {
    pack[i] ^= std::byte{0x80};
    const Result<Bytes> got = store_->get(digest);
    ASSERT_TRUE(!got || *got == chunk) << i;
    Bytes out(kBlockBytes);
    const bool read = store_->read(digest, 1, out).has_value();
    ASSERT_TRUE(!read || std::equal(out.begin(), out.end(), chunk.begin() + kBlockBytes)) << i;
    pack[i] ^= std::byte{0x80};
  }
  memory_->packs.clear();
  EXPECT_EQ(store_->get(digest).error().kind(), ErrorKind::kNotFound);
}

}  // namespace
}  // namespace ramet::chunk
