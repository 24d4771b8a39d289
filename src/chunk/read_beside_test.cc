// A store that is read through a door of its own while another one writes and collects, as two processes do: what is alive is
// read right, and nothing that a collection took away is called damage.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "chunk/maintenance.h"
#include "chunk/testing/store_fixture.h"

namespace ramet::chunk {
namespace {

using testing::blocks;
using testing::Bytes;
using testing::set_block;

class ReadBesideTest : public testing::StoreFixture {
 protected:
  std::unique_ptr<const Store> look() const {
    return Store::open_to_read(DirectoryStorage::open_to_read(packs_path()).value(), index_path()).value();
  }
};

TEST_F(ReadBesideTest, SeesWhatTheOtherOneCommitsAndLosesWhatItCollects) {
  const std::unique_ptr<const Store> reader = look();
  const Digest digest = put(blocks(0, 40));
  EXPECT_EQ(reader->get(digest).value(), blocks(0, 40));
  ASSERT_TRUE(collect({}));
  EXPECT_EQ(reader->get(digest).error().kind(), ErrorKind::kNotFound);
}

TEST_F(ReadBesideTest, ChangesNothing) {
  const Digest digest = put(blocks(0, 40));
  const std::unique_ptr<const Store> reader = look();
  const PackId pack = reader->packs().list()->at(0);
  EXPECT_EQ(reader->packs().remove(pack).error().kind(), ErrorKind::kPermission);
  EXPECT_EQ(reader->packs().write(PackId{}, {}).error().kind(), ErrorKind::kPermission);
  EXPECT_EQ(Index::open_to_read(index_path()).value()->begin_pack(PackId{}).error().kind(), ErrorKind::kPermission);
  EXPECT_FALSE(Store::open_to_read(DirectoryStorage::open_to_read(packs_path()).value(), directory_.path + "/none"));
  EXPECT_FALSE(std::filesystem::exists(directory_.path + "/none"));
  EXPECT_EQ(store_->get(digest).value(), blocks(0, 40));
}

// The pack is known when verify lists it, and collected when verify comes to it.
TEST_F(ReadBesideTest, WhatIsCollectedInTheMiddleOfAVerifyIsNoDamage) {
  put(blocks(0, 40));
  put(blocks(100, 40));
  bool collected = false;
  const VerifyReport report = verify(*look(), [&](const Progress&) {
                                if (!std::exchange(collected, true)) EXPECT_EQ(collect({})->packs_removed, 2u);
                              }).value();
  EXPECT_TRUE(report.problems.empty()) << report.problems[0].where;
  EXPECT_EQ(report.packs, 2u);
}

TEST_F(ReadBesideTest, ASnapshotIsOfOneMoment) {
  const Digest digest = put(blocks(0, 40));
  const std::unique_ptr<const Store> reader = look();
  {
    const Index::Snapshot snapshot = reader->index().hold_still().value();
    ASSERT_TRUE(collect({}));
    EXPECT_TRUE(reader->has(digest).value());
  }
  EXPECT_FALSE(reader->has(digest).value());
}

// What lives is moved into new packs again and again: each is stored beside twice as much that is dead when the batch ends.
TEST_F(ReadBesideTest, NothingIsWrongBesideCollectionsWithoutAPause) {
  const auto kept = [](uint64_t round) { return blocks(round * 1000, 40); };
  const auto store = [&](uint64_t round) {
    Batch batch = store_->begin();
    const Digest digest = batch.put(kept(round)).value().value();
    EXPECT_TRUE(batch.put(blocks(round * 1000 + 500, 80)));
    EXPECT_TRUE(batch.commit());
    return digest;
  };
  const Digest first = store(0);
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> moved = 0;
  std::thread writer([&] {
    for (uint64_t round = 1; !stop; round++) moved += collect({first, store(round)})->packs_written;
  });
  const std::unique_ptr<const Store> reader = look();
  for (int i = 0; i < 20 || moved < 5; i++) {
    const VerifyReport report = verify(*reader).value();
    EXPECT_TRUE(report.problems.empty()) << report.problems[0].where << ": " << report.problems[0].error.to_string();
    EXPECT_EQ(reader->get(first).value(), kept(0));
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace ramet::chunk
