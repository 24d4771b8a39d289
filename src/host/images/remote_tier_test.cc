// Packs brought to a real S3 server (tests/s3/server) in the background, and read from there.
#include "host/images/remote_tier.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/testing/small_disk.h"
#include "chunk/directory_storage.h"
#include "chunk/s3/testing/server.h"
#include "chunk/store.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/temporary_directory.h"
#include "host/images/image_store.h"
#include "host/images/scrubber.h"

namespace ramet::host {
namespace {

using chunk::testing::TemporaryDirectory;

constexpr Milliseconds kNever{3'600'000};

struct RemoteTierTest : ::testing::Test {
  RemoteTierOptions options(std::string prefix, uint64_t local_bytes) const {
    return {.place = chunk::s3::testing::Server::instance().place(),
            .prefix = "tier/" + std::move(prefix),
            .local_bytes = local_bytes,
            .interval = kNever};
  }
  void open(const RemoteTierOptions& options) { open(options, directory.path); }
  void open(const RemoteTierOptions& options, const std::string& place) {
    std::unique_ptr<chunk::TieredStorage> opened =
        RemoteTier::behind(chunk::DirectoryStorage::open(place + "/packs").value(), options).value();
    packs = opened.get();
    store = chunk::Store::open(std::move(opened), place + "/index.db", {}).value();
    tier.emplace(*packs, options);
  }
  Digest put(uint32_t seed) const {
    chunk::Batch batch = store->begin();
    const Digest name = *batch.put(content(seed)).value();
    EXPECT_TRUE(batch.commit());
    return name;
  }
  static std::vector<std::byte> content(uint32_t seed) { return chunk::testing::noise(40 * chunk::kBlockBytes, seed); }

  TemporaryDirectory directory;
  chunk::TieredStorage* packs = nullptr;
  std::unique_ptr<chunk::Store> store;
  std::optional<RemoteTier> tier;  // goes before the storage
};

TEST_F(RemoteTierTest, WhatWasBroughtThereIsReadThereOnceItsRoomHereIsWanted) {
  open(options("trim", 0));
  const Digest name = put(1);
  ASSERT_EQ(packs->local()->size(), 1u);
  ASSERT_TRUE(tier->bring_up_to_date());
  EXPECT_TRUE(packs->local()->empty());
  EXPECT_EQ(store->get(name).value(), content(1));
  EXPECT_GE(packs->remote_counts().read_bytes, 40 * chunk::kBlockBytes);
}

TEST_F(RemoteTierTest, WithoutALimitTheLocalPacksStay) {
  open(options("stay", UINT64_MAX));
  const Digest name = put(1);
  ASSERT_TRUE(tier->bring_up_to_date());
  EXPECT_TRUE(packs->waiting()->empty());
  EXPECT_EQ(store->get(name).value(), content(1));
  EXPECT_EQ(packs->remote_counts().reads, 0u);
}

TEST_F(RemoteTierTest, AServerThatIsAwayIsTroubleAndNothingIsLost) {
  RemoteTierOptions now = options("away", 0);
  open(now);
  const Digest name = put(1);
  tier.reset();
  store.reset();
  now.place.endpoint = "http://127.0.0.1:1";
  open(now);
  EXPECT_EQ(tier->bring_up_to_date().error().kind(), ErrorKind::kUnavailable);
  EXPECT_TRUE(tier->trouble().has_value());
  EXPECT_EQ(store->get(name).value(), content(1));
}

TEST_F(RemoteTierTest, AScrubReadsNothingOfWhatIsThereOnly) {
  ImageStoreOptions with_tier{.directory = directory.path + "/store", .remote = options("scrub", 0)};
  with_tier.remote->interval = Milliseconds(5);
  const std::unique_ptr<ImageStore> images = ImageStore::open(std::move(with_tier)).value();
  {
    chunk::Batch batch = images->chunks().begin();
    ASSERT_TRUE(batch.put(content(1)));
    ASSERT_TRUE(batch.commit());
  }
  const chunk::PackId pack = images->chunks().index().packs()->front().id;
  for (int i = 0; i < 1000 && images->is_here(pack); i++) std::this_thread::sleep_for(Milliseconds(10));
  ASSERT_FALSE(images->is_here(pack));
  EXPECT_EQ(Scrubber(*images).next_pack(), 0u);
  EXPECT_EQ(images->pack_reads().remote_bytes, 0u);
}

TEST_F(RemoteTierTest, OnAFullDiskWhatTheBucketHasIsReadThere) {
  const RemoteTierOptions with = options("full", UINT64_MAX);
  ramet::testing::on_a_small_disk(directory.path + "/small", 64u << 20, [&](ramet::testing::SmallDisk& disk) {
    open(with, disk.path());
    const Digest name = put(1);
    ASSERT_TRUE(tier->bring_up_to_date());
    const std::string damaged = disk.path() + "/packs/" + chunk::pack_name(packs->local()->front());
    const Digest waiting = put(2);
    std::filesystem::resize_file(damaged, 0);
    disk.fill();
    EXPECT_EQ(store->get(name).value(), content(1)) << "there is no room for it here";
    EXPECT_EQ(store->get(name).value(), content(1));
    EXPECT_EQ(store->get(waiting).value(), content(2));
    EXPECT_EQ(packs->local()->size(), 1u);
    chunk::Batch batch = store->begin();
    ASSERT_TRUE(batch.put(content(3)));
    EXPECT_EQ(batch.commit().error().kind(), ErrorKind::kNoSpace);
    EXPECT_TRUE(tier->bring_up_to_date()) << "what waits here needs no room to go there";
    EXPECT_TRUE(packs->waiting()->empty());
    for (const std::string& file : disk.files()) EXPECT_FALSE(file.ends_with(".unfinished")) << file;
    disk.free();
    EXPECT_EQ(store->get(put(3)).value(), content(3));
    EXPECT_TRUE(packs->refetch(store->index().packs()->front().id));
    EXPECT_EQ(packs->local()->size(), 3u);
    tier.reset();
    store.reset();
  });
}

// Two at one place would find each other's packs.
TEST_F(RemoteTierTest, ADomainHasAPlaceOfItsOwn) {
  const auto opened = [&](const char* name, const char* prefix, ImageStore* common) {
    ImageStoreOptions domain;
    domain.directory = directory.path + "/" + name;
    domain.common = common;
    domain.remote = options(prefix, UINT64_MAX);
    return ImageStore::open(std::move(domain));
  };
  const std::unique_ptr<ImageStore> common = opened("public", "public", nullptr).value();
  EXPECT_EQ(opened("x", "public", common.get()).error().kind(), ErrorKind::kInvalid);
  const std::unique_ptr<ImageStore> tenant = opened("a", "a", common.get()).value();
  EXPECT_EQ(opened("b", "a", common.get()).error().kind(), ErrorKind::kInvalid);
  EXPECT_TRUE(opened("b", "b", common.get()));
}

}  // namespace
}  // namespace ramet::host
