// Collections beside open batches: what a batch stored or found is there for whoever names it before the batch ends.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "chunk/maintenance.h"
#include "chunk/testing/memory_storage.h"
#include "chunk/testing/store_fixture.h"

namespace ramet::chunk {
namespace {

using testing::blocks;
using testing::Bytes;
using testing::set_block;
using Live = std::unordered_set<Digest, DigestHash>;

class CollectBesideTest : public testing::StoreFixture {};

TEST_F(CollectBesideTest, AChunkThatABatchFoundOutlivesItsOwner) {
  const Digest digest = put(blocks(0, 100));
  Batch batch = store_->begin();
  ASSERT_EQ(batch.put(blocks(0, 100)).value(), digest);
  ASSERT_TRUE(collect({}));
  ASSERT_TRUE(batch.commit());
  ASSERT_TRUE(collect({}));  // committed, and still nobody's
  EXPECT_EQ(store_->get(digest).value(), blocks(0, 100));
}

TEST_F(CollectBesideTest, LiteralsThatABatchRefersToOutliveTheirChunk) {
  put(blocks(0, 400));
  Bytes changed = blocks(0, 400);
  set_block(changed, 7, 9000);
  Batch batch = store_->begin();
  const Digest digest = batch.put(changed).value().value();
  EXPECT_EQ(collect({})->chunks_removed, 1u);
  ASSERT_TRUE(batch.commit());
  EXPECT_LE(stored_bytes(), 410 * kBlockBytes) << "stored again, not referred to";
  EXPECT_EQ(store_->get(digest).value(), changed);
  EXPECT_TRUE(verify(*store_)->problems.empty());
}

TEST_F(CollectBesideTest, WithoutItsBatchItGoes) {
  const Digest digest = put(blocks(0, 100));
  {
    Batch batch = store_->begin();
    ASSERT_TRUE(batch.put(blocks(0, 100)));
    ASSERT_TRUE(collect({}));
    EXPECT_TRUE(store_->has(digest).value());
  }
  ASSERT_TRUE(collect({}));
  EXPECT_FALSE(store_->has(digest).value());
  EXPECT_EQ(pack_files(), 0u);
}

// The batch ends while the collection asks what is alive, and the answer is from before.
TEST_F(CollectBesideTest, ABatchThatEndsWhileTheCollectionAsksIsSafe) {
  const Digest known = put(blocks(0, 100));
  std::optional<Batch> open = store_->begin();
  ASSERT_TRUE(open->put(blocks(0, 100)));
  const Digest stored = open->put(blocks(500, 100)).value().value();
  const Digest meanwhile = digest_of(blocks(900, 30));
  ASSERT_TRUE(store_->collect([&]() -> Result<Store::LiveSet> {
    EXPECT_TRUE(open->commit());
    open.reset();
    EXPECT_EQ(put(blocks(900, 30)), meanwhile);
    return Store::LiveSet{};
  }));
  EXPECT_EQ(store_->get(known).value(), blocks(0, 100));
  EXPECT_EQ(store_->get(stored).value(), blocks(500, 100));
  EXPECT_EQ(store_->get(meanwhile).value(), blocks(900, 30));
  ASSERT_TRUE(collect({}));
  EXPECT_EQ(store_->totals()->chunks, 0u);
}

TEST_F(CollectBesideTest, ACollectionThatCannotAskChangesNothing) {
  const Digest digest = put(blocks(0, 100));
  const Result<Store::Collected> done =
      store_->collect([]() -> Result<Store::LiveSet> { return fail(ErrorKind::kIo, "no answer"); });
  EXPECT_EQ(done.error().kind(), ErrorKind::kIo);
  EXPECT_EQ(store_->get(digest).value(), blocks(0, 100));
}

// Does something in the middle of a collection: when it writes what it moves.
class InterruptedStorage final : public PackStorage {
 public:
  explicit InterruptedStorage(std::function<Status()>& during) : during_(during) {}
  Status write(const PackId& id, std::span<const std::byte> bytes) override {
    if (during_) TRY(std::exchange(during_, {})());
    return memory_.write(id, bytes);
  }
  Status read(const PackId& id, uint64_t offset, std::span<std::byte> out) const override {
    return memory_.read(id, offset, out);
  }
  Result<uint64_t> size_bytes(const PackId& id) const override { return memory_.size_bytes(id); }
  Status remove(const PackId& id) override { return memory_.remove(id); }
  Result<std::vector<PackId>> list() const override { return memory_.list(); }

 private:
  std::function<Status()>& during_;
  testing::MemoryStorage memory_;
};

class InterruptedTest : public ::testing::Test {
 protected:
  InterruptedTest() {
    store_ = Store::open(std::make_unique<InterruptedStorage>(during_), directory_.path + "/index.db", {}).value();
    Batch batch = store_->begin();
    dead_ = batch.put(blocks(0, 300)).value().value();
    Bytes part = blocks(0, 50);
    live_ = batch.put(part).value().value();
    EXPECT_TRUE(batch.commit());
  }
  Result<Store::Collected> collect() {
    return store_->collect([&]() -> Result<Store::LiveSet> { return Store::LiveSet{{live_}}; });
  }

  testing::TemporaryDirectory directory_;
  std::function<Status()> during_;
  std::unique_ptr<Store> store_;
  Digest dead_, live_;
};

// The same chunk, others of the same blocks, and one of those that move, put when all of that is condemned.
TEST_F(InterruptedTest, WhatIsCondemnedIsStoredAnew) {
  Bytes similar = blocks(0, 300);
  set_block(similar, 5, 7000);
  Digest digest;
  during_ = [&]() -> Status {
    Batch batch = store_->begin();
    EXPECT_EQ(batch.put(blocks(0, 300)).value(), dead_);
    EXPECT_EQ(batch.put(blocks(0, 50)).value(), live_);
    digest = batch.put(similar).value().value();
    return batch.commit();
  };
  ASSERT_TRUE(collect());
  EXPECT_EQ(store_->get(dead_).value(), blocks(0, 300));
  EXPECT_EQ(store_->get(live_).value(), blocks(0, 50));
  EXPECT_EQ(store_->get(digest).value(), similar);
  EXPECT_TRUE(verify(*store_)->problems.empty());
}

TEST_F(InterruptedTest, ACollectionThatFailsGivesBackWhatItCondemned) {
  const uint64_t before = store_->totals()->pack_bytes;
  during_ = []() -> Status { return fail(ErrorKind::kNoSpace, "full"); };
  EXPECT_EQ(collect().error().kind(), ErrorKind::kNoSpace);
  Bytes similar = blocks(0, 300);
  set_block(similar, 5, 7000);
  Batch batch = store_->begin();
  EXPECT_EQ(batch.put(blocks(0, 300)).value(), dead_);
  ASSERT_TRUE(batch.put(similar));
  ASSERT_TRUE(batch.commit());
  EXPECT_LE(store_->totals()->pack_bytes - before, 4 * kPackAlignment) << "stored again, not referred to";
  EXPECT_EQ(store_->get(dead_).value(), blocks(0, 300));
}

// Threads put chunks made of each other's pieces, note them, take notes back, read; collections run all the while. The
// catalogue is the model: what is noted in it is there, byte for byte.
class Model {
 public:
  struct Entry {
    Digest digest;
    Bytes bytes;
  };
  void note(uint64_t number, Entry entry) {
    const std::lock_guard lock(mutex_);
    entries_.insert_or_assign(number, std::move(entry));
  }
  void take_back(uint64_t number) {
    const std::lock_guard lock(mutex_);
    entries_.erase(number);
  }
  std::map<uint64_t, Entry> all() const {
    const std::lock_guard lock(mutex_);
    return entries_;
  }
  Result<Store::LiveSet> live() const {
    Store::LiveSet out;
    for (const auto& [number, entry] : all()) out.chunks.insert(entry.digest);
    return out;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, Entry> entries_;
};

constexpr size_t kBlocks = 64;

// One user's life: a disk that changes, its last snapshots noted, the older ones given up. Only this thread changes its notes.
void live_beside(Store& store, Model& model, uint64_t thread, int rounds) {
  std::mt19937_64 random(thread);
  Bytes disk = blocks(0, kBlocks);
  std::optional<Digest> last;
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < 6; i++) set_block(disk, random() % kBlocks, random() % 500);  // often what others have, or had
    const uint64_t number = thread * 100 + static_cast<uint64_t>(round) % 4;
    Batch batch = store.begin();
    const Result<std::optional<Digest>> digest = batch.put(disk, last);
    ASSERT_TRUE(digest) << digest.error().to_string();
    const Bytes other = blocks(random() % 50 * 10, 20);
    ASSERT_TRUE(batch.put(other));
    if (random() % 8 == 0) continue;  // dropped
    ASSERT_TRUE(batch.commit());
    if (random() % 4 == 0) std::this_thread::yield();
    last = **digest;
    model.note(number, {**digest, disk});
    model.note(number + 50, {digest_of(other), other});
    const Result<Bytes> got = store.get(**digest);
    ASSERT_TRUE(got) << got.error().to_string();
    ASSERT_EQ(*got, disk);
    if (random() % 3 == 0) model.take_back(thread * 100 + random() % 4);
  }
}

// Equal blocks that two batches stored side by side are two.
size_t literals_in_use(const Store& store) {
  std::set<BlockRef> out;
  EXPECT_TRUE(store.index().visit_chunks([&](const Index::Chunk& chunk) {
    for (const Extent& e : chunk.recipe.extents)
      for (uint32_t i = 0; e.frame && i < e.blocks; i++) out.insert({*e.frame, e.first + i});
  }));
  return out.size();
}

TEST_F(CollectBesideTest, ThreadsThatPutGetAndDropLoseNothing) {
  constexpr uint64_t kThreads = 4;
  Model model;
  std::atomic<uint64_t> running = kThreads;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; t++)
    threads.emplace_back([&, t] {
      live_beside(*store_, model, t, 60);
      running--;
    });
  uint64_t collections = 0;
  for (; running > 0; collections++) {
    const Result<Store::Collected> done = store_->collect([&] { return model.live(); });
    ASSERT_TRUE(done) << done.error().to_string();
  }
  for (std::thread& t : threads) t.join();
  EXPECT_GT(collections, 5u);
  ASSERT_TRUE(store_->collect([&] { return model.live(); }));
  for (const auto& [number, entry] : model.all()) ASSERT_EQ(store_->get(entry.digest).value(), entry.bytes) << number;
  EXPECT_LE(stored_bytes(), literals_in_use(*store_) * kBlockBytes * 3 / 2);
  EXPECT_TRUE(verify(*store_)->problems.empty());
  EXPECT_EQ(pack_files(), store_->totals()->packs);
}

}  // namespace
}  // namespace ramet::chunk
