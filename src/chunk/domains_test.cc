// Two tenants and what is public: who may read and refer to what.
#include <gtest/gtest.h>

#include <filesystem>

#include "chunk/maintenance.h"
#include "chunk/store.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/memory_storage.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::chunk {
namespace {

using testing::blocks;
using testing::Bytes;
using testing::MemoryStorage;
using testing::set_block;

// A store of its own directory, whose packs outlive it.
struct Domain {
  explicit Domain(Store* public_store = nullptr) : common(public_store) { open(); }
  void open() {
    std::map<PackId, std::vector<std::byte>> kept;
    if (storage) kept = storage->packs;
    store.reset();
    auto packs = std::make_unique<MemoryStorage>();
    storage = packs.get();
    storage->packs = std::move(kept);
    store = Store::open(std::move(packs), index_path(), {.common = common}).value();
  }
  Digest put(const Bytes& chunk, const std::optional<Digest>& parent = std::nullopt) {
    Batch batch = store->begin();
    const Digest digest = batch.put(chunk, parent).value().value();
    EXPECT_TRUE(batch.commit());
    return digest;
  }
  Result<Store::Collected> collect(const Store::LiveSet& live) {
    return store->collect([&]() -> Result<Store::LiveSet> { return live; });
  }
  uint64_t stored_bytes() const { return store->totals()->pack_bytes; }
  std::string index_path() const { return directory.path + "/index.db"; }

  testing::TemporaryDirectory directory;
  Store* common;
  MemoryStorage* storage = nullptr;  // the store's
  std::unique_ptr<Store> store;
};

class DomainsTest : public ::testing::Test {
 protected:
  Domain public_;
  Domain a_{public_.store.get()}, b_{public_.store.get()};
  const Bytes image_ = blocks(0, 400);
  const Digest in_public_ = public_.put(image_);
};

Bytes changed(Bytes bytes, size_t block) {
  set_block(bytes, block, 90000 + block);
  return bytes;
}

TEST_F(DomainsTest, ATenantReadsWhatIsPublicAndStoresOnlyItsChanges) {
  EXPECT_EQ(a_.store->get(in_public_).value(), image_);
  EXPECT_EQ(a_.put(image_), in_public_);
  EXPECT_EQ(a_.stored_bytes(), 0u);
  const Digest digest = a_.put(changed(image_, 7), in_public_);
  EXPECT_LE(a_.stored_bytes(), 4 * kPackAlignment);
  a_.open();
  EXPECT_EQ(a_.store->get(digest).value(), changed(image_, 7));
  Bytes some(20 * kBlockBytes);
  ASSERT_TRUE(a_.store->read(digest, 0, some));
  EXPECT_TRUE(std::equal(some.begin(), some.end(), changed(image_, 7).begin()));
  EXPECT_TRUE(verify(*a_.store)->problems.empty());
}

// A frame's number means another frame in each store.
TEST_F(DomainsTest, ATenantKnowsThePublicFramesOfAPublicChunkAsSuch) {
  a_.put(blocks(5000, 100));  // frames of its own with the same numbers
  const Recipe recipe = a_.store->recipe(in_public_).value();
  ASSERT_FALSE(recipe.extents.empty());
  for (const Extent& e : recipe.extents) {
    ASSERT_TRUE(e.frame && is_common(*e.frame));
    EXPECT_TRUE(public_.storage->packs.contains(a_.store->frame(*e.frame)->pack));
  }
}

TEST_F(DomainsTest, WhatIsPublicNeverRefersToATenant) {
  const Bytes secret = blocks(5000, 100);
  a_.put(secret);
  public_.put(secret);
  EXPECT_GE(public_.stored_bytes(), 500 * kBlockBytes) << "stored again";
  EXPECT_TRUE(public_.store->uses_of_common()->empty());
}

// Another tenant's digest, also when that one has just read it, is as unknown as one that nobody has: the same answer, on the
// same way, which touches nothing of the other's.
TEST_F(DomainsTest, WhatAnotherTenantHasIsNotFound) {
  const Bytes secret = blocks(5000, 100);
  const Digest others = a_.put(secret), nobodys = digest_of(blocks(7000, 1));
  ASSERT_EQ(a_.store->get(others).value(), secret);
  const size_t reads = a_.storage->reads, own_reads = b_.storage->reads;
  Bytes out(kBlockBytes);
  for (const Digest& digest : {others, nobodys}) {
    EXPECT_FALSE(b_.store->has(digest).value());
    const Error error = b_.store->get(digest).error();
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
    EXPECT_EQ(error.message(), "no chunk " + digest.to_hex());
    EXPECT_EQ(b_.store->read(digest, 0, out).error().kind(), ErrorKind::kNotFound);
    EXPECT_EQ(b_.store->recipe(digest).error().kind(), ErrorKind::kNotFound);
  }
  EXPECT_EQ(a_.storage->reads, reads);
  EXPECT_EQ(b_.storage->reads, own_reads);
}

// The other one's store need not even be there.
TEST_F(DomainsTest, NotFoundNeedsNothingOfTheOtherTenant) {
  const Digest others = a_.put(blocks(5000, 100));
  a_.store.reset();
  EXPECT_EQ(b_.store->get(others).error().kind(), ErrorKind::kNotFound);
}

TEST_F(DomainsTest, TheSameBytesOfTwoTenantsAreStoredTwice) {
  const Bytes secret = blocks(5000, 100);
  EXPECT_EQ(a_.put(secret), b_.put(secret));
  EXPECT_GE(b_.stored_bytes(), 100 * kBlockBytes);
  // Another one's digest as a parent is a hint that leads nowhere.
  const Bytes more = changed(blocks(6000, 50), 3);
  const Digest others = a_.put(more);
  const uint64_t before = b_.stored_bytes();
  b_.put(changed(more, 4), others);
  EXPECT_GE(b_.stored_bytes() - before, 50 * kBlockBytes);
}

TEST_F(DomainsTest, FramesThatTenantsUseOutliveTheirPublicChunk) {
  const Digest digest = a_.put(changed(image_, 7), in_public_);
  Store::LiveSet live;
  live.frames = a_.store->uses_of_common().value();
  EXPECT_FALSE(live.frames.empty());
  EXPECT_EQ(public_.collect(live)->chunks_removed, 1u);
  EXPECT_EQ(a_.store->get(digest).value(), changed(image_, 7));
  ASSERT_TRUE(a_.collect({}));  // the tenant gives it up
  live.frames = a_.store->uses_of_common().value();
  ASSERT_TRUE(public_.collect(live));
  EXPECT_EQ(public_.stored_bytes(), 0u);
}

TEST_F(DomainsTest, AnOpenBatchOfATenantHoldsWhatIsPublic) {
  Batch known = a_.store->begin(), similar = b_.store->begin();
  ASSERT_EQ(known.put(image_).value(), in_public_);
  const Digest digest = similar.put(changed(image_, 7), in_public_).value().value();
  EXPECT_EQ(public_.collect({})->chunks_removed, 0u);
  ASSERT_TRUE(similar.commit());
  EXPECT_EQ(a_.store->get(in_public_).value(), image_);
  EXPECT_EQ(b_.store->get(digest).value(), changed(image_, 7));
}

// Its own blocks move, its references to what is public stay.
TEST_F(DomainsTest, ATenantCollectsItsOwn) {
  Bytes mixed = changed(image_, 7);
  const Bytes own = blocks(5000, 40);
  mixed.insert(mixed.end(), own.begin(), own.end());
  std::optional<Batch> batch = a_.store->begin();
  const Digest digest = batch->put(mixed, in_public_).value().value();
  ASSERT_TRUE(batch->put(blocks(8000, 300)));
  ASSERT_TRUE(batch->commit());
  batch.reset();
  EXPECT_EQ(a_.collect({.chunks = {digest}, .frames = {}})->packs_removed, 1u);
  EXPECT_EQ(a_.store->get(digest).value(), mixed);
  EXPECT_LE(a_.stored_bytes(), 60 * kBlockBytes);
}

TEST_F(DomainsTest, ATenantsIndexComesBackFromItsPacks) {
  const Digest digest = a_.put(changed(image_, 7), in_public_), own = a_.put(blocks(5000, 20));
  const std::map<PackId, std::vector<std::byte>> kept = a_.storage->packs;
  a_.store.reset();
  MemoryStorage packs;
  packs.packs = kept;
  const std::string path = a_.directory.path + "/again.db";
  ASSERT_TRUE(rebuild_index(packs, path, public_.store.get()));
  auto copy = std::make_unique<MemoryStorage>();
  copy->packs = kept;
  const std::unique_ptr<Store> again = Store::open(std::move(copy), path, {.common = public_.store.get()}).value();
  EXPECT_EQ(again->get(digest).value(), changed(image_, 7));
  EXPECT_EQ(again->get(own).value(), blocks(5000, 20));
}

TEST_F(DomainsTest, WithoutItsPublicStoreARecipeCannotBeCarriedOut) {
  const Digest digest = a_.put(changed(image_, 7), in_public_);
  a_.common = nullptr;
  a_.open();
  EXPECT_EQ(a_.store->get(digest).error().kind(), ErrorKind::kCorrupt);
}

TEST_F(DomainsTest, ReferencesGoOneStepOnly) {
  testing::TemporaryDirectory directory;
  const auto third = Store::open(std::make_unique<MemoryStorage>(), directory.path + "/index.db", {.common = a_.store.get()});
  EXPECT_EQ(third.error().kind(), ErrorKind::kInvalid);
}

}  // namespace
}  // namespace ramet::chunk
