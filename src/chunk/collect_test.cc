// What is collected is gone, what is not is there, also for those who read meanwhile and for an index made again from what is
// left.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "chunk/maintenance.h"
#include "chunk/testing/store_fixture.h"

namespace ramet::chunk {
namespace {

using testing::blocks;
using testing::Bytes;
using testing::set_block;
using Live = std::unordered_set<Digest, DigestHash>;

class CollectTest : public testing::StoreFixture {
 protected:
  void rebuild() {
    store_.reset();
    std::filesystem::remove(index_path());
    EXPECT_TRUE(rebuild_index(*DirectoryStorage::open(packs_path()).value(), index_path()).value().left_out.empty());
    reopen();
  }
};

TEST_F(CollectTest, NothingAliveLeavesNothing) {
  for (uint64_t i = 0; i < 3; i++) put(blocks(i * 100, 50));
  const Store::Collected done = collect({}).value();
  EXPECT_EQ(done.chunks_removed, 3u);
  EXPECT_EQ(done.bytes_after, 0u);
  EXPECT_EQ(pack_files(), 0u);
  put(blocks(0, 50));  // stored again, not referred to
  EXPECT_EQ(store_->get(digest_of(blocks(0, 50))).value(), blocks(0, 50));
}

TEST_F(CollectTest, EverythingAliveIsLeftAlone) {
  Live live;
  for (uint64_t i = 0; i < 3; i++) live.insert(put(blocks(i * 100, 50)));
  const uint64_t before = stored_bytes();
  const Store::Collected done = collect(live).value();
  EXPECT_EQ(done.packs_removed + done.packs_written + done.chunks_removed, 0u);
  EXPECT_EQ(stored_bytes(), before);
}

// The parent dies, but half of its blocks live on in its child.
TEST_F(CollectTest, BlocksLiveOnInTheChunksThatUseThem) {
  const Digest parent = put(blocks(0, 400));
  Bytes changed = blocks(0, 400);
  for (size_t i = 100; i < 350; i++) set_block(changed, i, 9000);
  const Digest child = put(changed, parent);
  ASSERT_TRUE(collect({child}));
  EXPECT_EQ(store_->get(child).value(), changed);
  EXPECT_EQ(store_->get(parent).error().kind(), ErrorKind::kNotFound);
  EXPECT_LE(stored_bytes(), 151 * kBlockBytes * 11 / 10);
  EXPECT_TRUE(verify(*store_)->problems.empty());
  rebuild();
  EXPECT_EQ(store_->get(child).value(), changed);
  EXPECT_TRUE(verify(*store_)->problems.empty());
}

// A chunk of blocks that were all known: only its record lies in the pack that is emptied.
TEST_F(CollectTest, RecordsAreMovedToo) {
  const Digest known = put(blocks(0, 100));
  Bytes turned(100 * kBlockBytes);
  for (size_t i = 0; i < 100; i++) set_block(turned, i, (i + 50) % 100);
  std::optional<Batch> batch = store_->begin();
  ASSERT_TRUE(batch->put(blocks(5000, 100)));
  const Digest digest = batch->put(turned).value().value();
  ASSERT_TRUE(batch->commit());
  batch.reset();
  EXPECT_EQ(collect({known, digest})->packs_removed, 1u);
  EXPECT_EQ(store_->get(digest).value(), turned);
  rebuild();
  EXPECT_EQ(store_->get(digest).value(), turned);
  ASSERT_TRUE(collect({digest}));
  EXPECT_EQ(store_->get(digest).value(), turned);
  EXPECT_EQ(store_->totals()->chunks, 1u);
}

TEST_F(CollectTest, SmallPacksBecomeOne) {
  Live live;
  for (uint64_t i = 0; i < 40; i++) live.insert(put(blocks(i, 1)));
  EXPECT_EQ(pack_files(), 40u);
  ASSERT_TRUE(collect(live));
  EXPECT_EQ(pack_files(), 1u);
  EXPECT_LE(stored_bytes(), 42 * kBlockBytes * 11 / 10);
  for (uint64_t i = 0; i < 40; i++) EXPECT_EQ(store_->get(digest_of(blocks(i, 1))).value(), blocks(i, 1));
  EXPECT_EQ(collect(live)->packs_written, 0u);  // and stay it
}

// Snapshots of one disk, rewritten here and there, the last ten of them kept: the history does not add up.
TEST_F(CollectTest, StoredBytesStayWithinOneAndAHalfTimesTheLiveOnes) {
  constexpr size_t kBlocks = 256, kKept = 10;
  std::mt19937 random(3);
  Bytes disk = blocks(0, kBlocks);
  std::vector<std::pair<Digest, Bytes>> snapshots;
  for (uint64_t round = 0; round < 300; round++) {
    for (int i = 0; i < 12; i++) set_block(disk, random() % kBlocks, random());
    snapshots.emplace_back(put(disk, snapshots.empty() ? std::nullopt : std::optional(snapshots.back().first)), disk);
    if (snapshots.size() > kKept) snapshots.erase(snapshots.begin());
    if (round % 7 != 6) continue;
    Live live;
    std::unordered_set<std::string> unique;
    for (const auto& [digest, bytes] : snapshots) {
      live.insert(digest);
      for (size_t b = 0; b < kBlocks; b++)
        unique.insert(to_hex(print_of(std::span(bytes).subspan(b * kBlockBytes, kBlockBytes)).bytes));
    }
    ASSERT_TRUE(collect(live));
    ASSERT_LE(stored_bytes(), unique.size() * kBlockBytes * 3 / 2) << "round " << round;
    for (const auto& [digest, bytes] : snapshots) ASSERT_EQ(store_->get(digest).value(), bytes) << "round " << round;
  }
  rebuild();
  for (const auto& [digest, bytes] : snapshots) ASSERT_EQ(store_->get(digest).value(), bytes);
  EXPECT_TRUE(verify(*store_)->problems.empty());
}

TEST_F(CollectTest, ReadersAndWritersGoOnMeanwhile) {
  std::vector<Digest> kept;
  for (uint64_t i = 0; i < 10; i++) kept.push_back(put(blocks(i * 20, 40)));
  std::atomic<bool> over = false;
  std::atomic<uint64_t> reads = 0;
  std::thread reader([&] {
    for (uint64_t i = 0; !over; i++, reads++) {
      const Result<Bytes> got = store_->get(kept[i % kept.size()]);
      ASSERT_TRUE(got) << got.error().to_string();
      ASSERT_EQ(*got, blocks(i % kept.size() * 20, 40));
    }
  });
  std::thread writer([&] {
    for (uint64_t i = 0; !over; i++) put(blocks(5000 + i * 7, 10));  // dies at the next collection
  });
  for (int round = 0; round < 30; round++) {
    ASSERT_TRUE(collect({kept.begin(), kept.end()}));
    ::usleep(5000);
  }
  over = true;
  reader.join();
  writer.join();
  EXPECT_GT(reads, 10u);
  EXPECT_TRUE(verify(*store_)->problems.empty());
}

TEST_F(CollectTest, KilledAtAnyMomentItLosesNothingThatIsAlive) {
  std::vector<Digest> kept;
  for (uint64_t i = 0; i < 6; i++) kept.push_back(put(blocks(i * 30, 60)));
  store_.reset();
  for (int round = 0; round < 15; round++) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      reopen();
      for (uint64_t i = 0;; i++) {
        put(blocks(7000 + i * 3, 20));
        if (!collect({kept.begin(), kept.end()})) ::_exit(1);
      }
    }
    ::usleep(static_cast<useconds_t>(30'000 + 9'000 * round));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the collection failed";
    reopen();
    for (uint64_t i = 0; i < 6; i++) ASSERT_EQ(store_->get(kept[i]).value(), blocks(i * 30, 60)) << "round " << round;
    ASSERT_TRUE(verify(*store_)->problems.empty());
    ASSERT_EQ(pack_files(), store_->totals()->packs);
    store_.reset();
  }
}

}  // namespace
}  // namespace ramet::chunk
