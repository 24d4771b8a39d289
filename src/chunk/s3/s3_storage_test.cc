// Packs in a bucket of a real S3 server (tests/s3/server): the suite that every place passes, alone and behind a directory.
#include "chunk/s3/s3_storage.h"

#include "chunk/directory_storage.h"
#include "chunk/s3/testing/server.h"
#include "chunk/store.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/storage_conformance.h"
#include "chunk/tiered_storage.h"

namespace ramet::chunk::testing {
namespace {

using s3::S3Storage;
using s3::testing::Server;

// A prefix of its own for each directory.
std::unique_ptr<PackStorage> bucket(const std::string& path) {
  const std::string name = path.substr(path.find_last_of('/', path.find_last_of('/') - 1) + 1);
  return S3Storage::create(Server::instance().client(), "conformance/" + name).value();
}
std::unique_ptr<PackStorage> tiered(const std::string& path) {
  return std::make_unique<TieredStorage>(DirectoryStorage::open(path).value(), bucket(path));
}

INSTANTIATE_TEST_SUITE_P(S3, StorageConformance, ::testing::Values(Place{"Bucket", bucket}, Place{"Tiered", tiered}),
                         name_of_place);

TEST(S3Storage, APrefixKeepsDomainsApart) {
  const std::unique_ptr<S3Storage> a = S3Storage::create(Server::instance().client(), "apart/a").value();
  const std::unique_ptr<S3Storage> b = S3Storage::create(Server::instance().client(), "apart/b").value();
  ASSERT_TRUE(a->write(id_number(1), Pages(1, 1).bytes()));
  EXPECT_TRUE(b->list()->empty());
  std::vector<std::byte> out(10);
  EXPECT_EQ(b->read(id_number(1), 0, out).error().kind(), ErrorKind::kNotFound);
}

TEST(S3Storage, ListsMoreThanOnePage) {
  const std::unique_ptr<S3Storage> storage = S3Storage::create(Server::instance().client(), "pages").value();
  for (uint32_t n = 0; n < 5; n++) ASSERT_TRUE(storage->write(id_number(n), Pages(n, 1).bytes()));
  const std::unique_ptr<s3::Client> client = Server::instance().client();
  std::vector<std::string> keys;
  std::string from;
  do {
    s3::ListedObjects page = client->list("pages/", from, 2).value();
    EXPECT_LE(page.keys.size(), 2u);
    keys.insert(keys.end(), page.keys.begin(), page.keys.end());
    from = page.continuation;
  } while (!from.empty());
  EXPECT_EQ(keys.size(), 5u);
}

TEST(S3Storage, WhatElseIsInTheBucketIsLeftAlone) {
  ASSERT_TRUE(Server::instance().client()->put("else/packs/notes & <more>.txt", Pages(1, 1).bytes()));
  EXPECT_TRUE(S3Storage::create(Server::instance().client(), "else").value()->list()->empty());
}

TEST(S3Storage, ALargestPackGoesThrough) {
  const Pages pack(7, kMaxPackBytes / kPackAlignment);
  const std::unique_ptr<S3Storage> storage = S3Storage::create(Server::instance().client(), "large").value();
  ASSERT_TRUE(storage->write(id_number(7), pack.bytes()));
  EXPECT_EQ(storage->size_bytes(id_number(7)).value(), kMaxPackBytes);
  std::vector<std::byte> out(1000);
  ASSERT_TRUE(storage->read(id_number(7), kMaxPackBytes - 1000, out));
  EXPECT_TRUE(std::ranges::equal(out, pack.bytes().last(1000)));
}

// A store whose pack went to the bucket and away from the disk: one block costs one frame.
TEST(S3Storage, AStoreReadsFromTheBucketJustWhatItNeedsAndIsMendedFromIt) {
  const TemporaryDirectory directory;
  std::unique_ptr<PackStorage> packs = tiered(directory.path + "/packs");
  TieredStorage& tiers = static_cast<TieredStorage&>(*packs);
  const std::unique_ptr<Store> store = Store::open(std::move(packs), directory.path + "/index.db", {}).value();
  const Bytes chunk = blocks(1, 300);
  Batch batch = store->begin();
  const Digest digest = batch.put(chunk).value().value();
  ASSERT_TRUE(batch.commit());
  ASSERT_TRUE(succeeds(tiers.upload()));
  const PackId pack = tiers.list()->at(0);
  ASSERT_TRUE(succeeds(tiers.drop_local(pack)));

  Bytes out(kBlockBytes);
  ASSERT_TRUE(succeeds(store->read(digest, 200, out)));
  EXPECT_TRUE(std::ranges::equal(out, std::span(chunk).subspan(200 * kBlockBytes, kBlockBytes)));
  EXPECT_EQ(tiers.remote_counts().reads, 1u);
  EXPECT_EQ(tiers.remote_counts().read_bytes, kFrameBlocks * kBlockBytes);  // noise: as it is

  ASSERT_TRUE(succeeds(tiers.refetch(pack)));
  const uint64_t fetched = tiers.remote_counts().reads;
  EXPECT_EQ(store->get(digest).value(), chunk);
  EXPECT_EQ(tiers.remote_counts().reads, fetched);
}

TEST(S3Storage, AWrongKeyOrBucketIsSaidAndTheKeyIsNot) {
  s3::Place place = Server::instance().place();
  place.credentials.secret_key = "wrong-and-secret";
  const Result<uint64_t> refused = s3::Client::create(place, {}).value()->size_bytes("a");
  EXPECT_EQ(refused.error().kind(), ErrorKind::kPermission);
  const Result<s3::ListedObjects> listed = s3::Client::create(place, {}).value()->list("a", "");
  EXPECT_THAT(listed.error().to_string(), ::testing::HasSubstr("SignatureDoesNotMatch"));
  EXPECT_THAT(listed.error().to_string(), ::testing::Not(::testing::HasSubstr("wrong-and-secret")));
  place = Server::instance().place();
  place.bucket = "nobodys";
  EXPECT_EQ(s3::Client::create(place, {}).value()->list("a", "").error().kind(), ErrorKind::kUnavailable);
}

}  // namespace
}  // namespace ramet::chunk::testing
