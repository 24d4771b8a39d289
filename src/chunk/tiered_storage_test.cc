// Two places for packs, one behind the other: where reads go, what upload() promises, what a refetch mends.
#include "chunk/tiered_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chunk/store.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/memory_storage.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::chunk {
namespace {

using testing::blocks;
using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::MemoryStorage;

// A store with one chunk in one pack.
class TieredStorageTest : public ::testing::Test {
 protected:
  TieredStorageTest() {
    std::unique_ptr<MemoryStorage> local = std::make_unique<MemoryStorage>(), remote = std::make_unique<MemoryStorage>();
    local_ = local.get();
    remote_ = remote.get();
    std::unique_ptr<TieredStorage> tiered = std::make_unique<TieredStorage>(std::move(local), std::move(remote));
    tiered_ = tiered.get();
    store_ = Store::open(std::move(tiered), directory_.path + "/index.db", {}).value();
    Batch batch = store_->begin();
    EXPECT_TRUE(batch.put(chunk_));
    EXPECT_TRUE(batch.commit());
    pack_ = local_->packs.begin()->first;
  }
  bool reads_right() const {
    const Result<Bytes> got = store_->get(digest_of(chunk_));
    EXPECT_TRUE(!got || *got == chunk_);
    return got.has_value();
  }

  const Bytes chunk_ = blocks(1, 100);
  testing::TemporaryDirectory directory_;
  MemoryStorage *local_ = nullptr, *remote_ = nullptr;
  TieredStorage* tiered_ = nullptr;
  std::unique_ptr<Store> store_;
  PackId pack_{};
};

TEST_F(TieredStorageTest, APackWaitsHereUntilItIsUploaded) {
  EXPECT_THAT(tiered_->waiting().value(), ElementsAre(pack_));
  EXPECT_EQ(tiered_->drop_local(pack_).error().kind(), ErrorKind::kConflict);
  ASSERT_TRUE(tiered_->upload());
  EXPECT_THAT(tiered_->waiting().value(), IsEmpty());
  EXPECT_EQ(remote_->packs, local_->packs);
  ASSERT_TRUE(tiered_->upload());
  EXPECT_EQ(tiered_->remote_counts().writes, 1u);
}

TEST_F(TieredStorageTest, AFailedUploadIsMadeUpFor) {
  remote_->fail_writes = ErrorKind::kUnavailable;
  EXPECT_EQ(tiered_->upload().error().kind(), ErrorKind::kUnavailable);
  EXPECT_TRUE(reads_right());
  remote_->fail_writes.reset();
  EXPECT_TRUE(tiered_->upload());
  EXPECT_EQ(remote_->packs.size(), 1u);
}

TEST_F(TieredStorageTest, ADamagedPackIsNotUploaded) {
  local_->packs.begin()->second[5000] ^= std::byte{1};
  EXPECT_EQ(tiered_->upload().error().kind(), ErrorKind::kCorrupt);
  EXPECT_THAT(remote_->packs, IsEmpty());
}

TEST_F(TieredStorageTest, ReadsGoToTheRemoteOnlyForWhatIsNotHere) {
  ASSERT_TRUE(tiered_->upload());
  EXPECT_TRUE(reads_right());
  EXPECT_EQ(tiered_->remote_counts().reads, 0u);
  ASSERT_TRUE(tiered_->drop_local(pack_));
  EXPECT_THAT(local_->packs, IsEmpty());
  const uint64_t local_reads = tiered_->local_counts().reads;
  Bytes out(kBlockBytes);
  ASSERT_TRUE(store_->read(digest_of(chunk_), 40, out));
  EXPECT_TRUE(std::equal(out.begin(), out.end(), chunk_.begin() + 40 * kBlockBytes));
  EXPECT_EQ(tiered_->local_counts().reads, local_reads);
  EXPECT_EQ(tiered_->remote_counts().reads, 1u);
  EXPECT_EQ(tiered_->remote_counts().read_bytes, kFrameBlocks * kBlockBytes);  // noise: the frame as it is
  EXPECT_THAT(local_->packs, IsEmpty());
}

TEST_F(TieredStorageTest, DamageHereIsMendedFromTheRemoteOnce) {
  ASSERT_TRUE(tiered_->upload());
  const std::map<PackId, Bytes> good = local_->packs;
  local_->packs.begin()->second[5000] ^= std::byte{1};
  EXPECT_TRUE(reads_right());
  EXPECT_EQ(local_->packs, good);
  const uint64_t fetched = tiered_->remote_counts().reads;
  EXPECT_TRUE(reads_right());
  EXPECT_EQ(tiered_->remote_counts().reads, fetched);
  local_->packs.begin()->second.resize(kPackAlignment);
  EXPECT_TRUE(reads_right());
  EXPECT_EQ(local_->packs, good);
}

TEST_F(TieredStorageTest, DamageInBothIsAnErrorAndChangesNothing) {
  ASSERT_TRUE(tiered_->upload());
  local_->packs.begin()->second[5000] ^= std::byte{1};
  remote_->packs.begin()->second[9000] ^= std::byte{1};
  const std::map<PackId, Bytes> before = local_->packs;
  EXPECT_EQ(store_->get(digest_of(chunk_)).error().kind(), ErrorKind::kCorrupt);
  EXPECT_EQ(local_->packs, before);
}

TEST_F(TieredStorageTest, AWrongPackInTheRemoteIsNotTakenForThisOne) {
  Batch batch = store_->begin();
  ASSERT_TRUE(batch.put(blocks(5000, 100)));
  ASSERT_TRUE(batch.commit());
  ASSERT_TRUE(tiered_->upload());
  const auto first = remote_->packs.begin(), second = std::next(first);
  std::swap(first->second, second->second);
  EXPECT_TRUE(tiered_->refetch(pack_));  // the local one is whole
  local_->packs.at(pack_)[5000] ^= std::byte{1};
  EXPECT_EQ(tiered_->refetch(pack_).error().kind(), ErrorKind::kCorrupt);
}

TEST_F(TieredStorageTest, WithoutTheRemoteAllThatIsHereWorks) {
  remote_->fail_reads = remote_->fail_writes = ErrorKind::kUnavailable;
  EXPECT_TRUE(reads_right());
  local_->packs.begin()->second[5000] ^= std::byte{1};
  EXPECT_EQ(store_->get(digest_of(chunk_)).error().kind(), ErrorKind::kCorrupt);
}

TEST_F(TieredStorageTest, AnUnfinishedPackAndARemoteThatIsAwayDoNotKeepAStoreFromOpening) {
  const auto kept = local_->packs;
  const std::string index = directory_.path + "/index.db";
  store_.reset();
  ASSERT_TRUE(Index::open(index).value()->begin_pack(random_pack_id().value()));
  const auto open = [&](std::optional<ErrorKind> removals) {
    std::unique_ptr<MemoryStorage> local = std::make_unique<MemoryStorage>(), remote = std::make_unique<MemoryStorage>();
    local->packs = kept;
    remote->fail_removals = removals;
    store_ = Store::open(std::make_unique<TieredStorage>(std::move(local), std::move(remote)), index, {}).value();
  };
  open(ErrorKind::kUnavailable);
  EXPECT_TRUE(reads_right());
  EXPECT_EQ(store_->index().unfinished_packs()->size(), 1u);
  store_.reset();
  open(std::nullopt);
  EXPECT_THAT(store_->index().unfinished_packs().value(), IsEmpty());
}

TEST_F(TieredStorageTest, RemovingTakesAwayBoth) {
  ASSERT_TRUE(tiered_->upload());
  ASSERT_TRUE(tiered_->remove(pack_));
  EXPECT_THAT(tiered_->list().value(), IsEmpty());
  EXPECT_THAT(remote_->packs, IsEmpty());
}

}  // namespace
}  // namespace ramet::chunk
