// Two tenants and the public, each with a store, caches and a socket of its own, in one process: a tenant finds what is public,
// and nothing that it sends tells it what the other one has. Work is counted instead of timed: statements of SQLite and bytes
// read of packs, for each domain.
#include <filesystem>
#include <thread>

#include "host/images/testing/chunk_reader.h"
#include "host/images/testing/domain.h"
#include "host/images/testing/image_fixture.h"

namespace ramet::host {
namespace {

using image::kChunkBlocks;
using testing::Bytes;
using testing::ChunkReader;
using testing::Domain;
using testing::read_block;
using testing::StoreWork;

constexpr uint64_t kBlocks = 100;
constexpr ImageId user(const char* name) { return {ImageSpace::kUser, name}; }
constexpr ImageId disk_of_template(const char* name) { return {ImageSpace::kTemplate, name}; }

class ImageDomainsTest : public testing::ImageFixture {
 protected:
  void SetUp() override {}
  // A disk of one chunk, full of noise.
  UniqueFd raw(uint64_t seed, const std::vector<uint64_t>& other_blocks = {}) {
    std::vector<uint64_t> all;
    for (uint64_t block = 0; block < kBlocks; block++) all.push_back(block);
    UniqueFd file = raw_file(kBlocks, all, seed);
    for (const uint64_t block : other_blocks)
      EXPECT_TRUE(pwrite_all(file.get(), block_bytes(block, seed + 1000), block * image::kBlockBytes));
    return file;
  }
  static std::shared_ptr<OpenImage> import(Domain& domain, const ImageId& id, const UniqueFd& file,
                                           OpenImage* parent = nullptr) {
    return domain.store().import_raw(id, file.get(), parent).value();
  }
  static Digest chunk_of(const UniqueFd& file) { return chunk::digest_of(content(file)); }

  testing::CountedStatements statements_;  // of all that is opened below
  Domain public_;
  Domain a_{&public_}, b_{&public_, 1};
};

// What a client of B sees of an image, and what that took.
struct Seen {
  std::string error;
  StoreWork of_b, of_a, of_public;
  size_t held = 0;
  friend bool operator==(const Seen&, const Seen&) = default;
};

class Watched : public ImageDomainsTest {
 protected:
  Seen look(const char* name) {
    const auto client = b_.client(name, kBlocks);
    const StoreWork a = a_.work(), b = b_.work(), common = public_.work();
    const Result<Bytes> block = read_block(*client, 7);
    return {block ? "bytes" : block.error().to_string(), b_.work() - b, a_.work() - a, public_.work() - common,
            b_.images().server().usage().held_chunks};
  }
};

TEST_F(Watched, AnotherTenantsChunkIsAnErrorAndItBeingWarmThereChangesNothing) {
  const UniqueFd secret = raw(1);
  b_.add_forged("forged", kBlocks, {chunk_of(secret)});
  const std::shared_ptr<OpenImage> forged = b_.store().use(user("forged")).value();
  ASSERT_TRUE(forged->chunk(0));  // its page is known from here on
  const Seen nobody_has_it = look("forged");
  EXPECT_NE(nobody_has_it.error.find("no chunk " + chunk_of(secret).to_hex()), std::string::npos) << nobody_has_it.error;
  EXPECT_GT(nobody_has_it.of_b.statements, 0u);
  EXPECT_EQ(nobody_has_it.of_b.read_bytes, 0u);

  const std::shared_ptr<OpenImage> image = import(a_, user("disk"), secret);
  EXPECT_EQ(image->chunk(0).value(), chunk_of(secret));
  EXPECT_EQ(look("forged"), nobody_has_it) << "stored there";

  const auto reader = a_.client("disk", kBlocks);
  ASSERT_EQ(read_block(*reader, 7).value(), block_bytes(7, 1));
  EXPECT_EQ(look("forged"), nobody_has_it) << "in its frame cache";

  a_.store().warm(*image, secret.get());
  ASSERT_EQ(read_block(*reader, 8).value(), block_bytes(8, 1));
  ASSERT_EQ(a_.images().server().usage().held_chunks, 1u);
  EXPECT_EQ(look("forged"), nobody_has_it) << "in its chunk cache, and held by a reader";
  EXPECT_EQ(nobody_has_it.of_a, StoreWork{});
  EXPECT_EQ(b_.store().cache().usage().chunks, 0u);
}

// The file itself, with the other one's pages in it.
TEST_F(Watched, AnotherTenantsManifestReadsAsAnErrorToo) {
  const UniqueFd secret = raw(1);
  import(a_, user("disk"), secret);
  std::filesystem::copy_file(a_.directory() + "/images/disk.manifest", b_.directory() + "/images/stolen.manifest");
  const Seen seen = look("stolen");
  EXPECT_NE(seen.error.find("no chunk "), std::string::npos) << seen.error;
  EXPECT_EQ(seen.of_a, StoreWork{});
  EXPECT_EQ(seen.held, 0u);
  EXPECT_FALSE(b_.images().download("stolen").value()->next());
  EXPECT_FALSE(b_.images().list()) << "what it costs is not known either";
  EXPECT_FALSE(b_.store().collect()) << "nothing may be lost for it";
}

TEST_F(ImageDomainsTest, WhoSaysToHoldAnotherTenantsChunkLeasesNothing) {
  const UniqueFd secret = raw(1);
  a_.store().warm(*import(a_, user("disk"), secret), secret.get());
  b_.add_forged("forged", kBlocks, {chunk_of(secret)});
  ChunkReader reader(b_.images().server().attach(b_.store().use(user("forged")).value()).value());
  EXPECT_EQ(reader.hello({}, {0}), kBlocks);
  EXPECT_EQ(b_.images().server().usage().held_chunks, 0u);
  EXPECT_EQ(a_.store().cache().usage().leased_bytes, 0u);
}

// No shortcut for bytes that another one has: neither its size nor its work tells.
TEST_F(ImageDomainsTest, TheSamePrivateBytesAreStoredAgain) {
  Domain before(&public_), after(&public_);
  const UniqueFd secret = raw(1);
  const StoreWork start = before.work();
  import(before, user("mine"), secret);
  const StoreWork alone = before.work() - start;
  EXPECT_GE(before.stored_bytes(), kBlocks * image::kBlockBytes);

  import(a_, user("disk"), secret);
  const StoreWork of_a = a_.work(), begin = after.work();
  import(after, user("mine"), secret);
  EXPECT_EQ(after.work() - begin, alone);
  EXPECT_EQ(after.stored_bytes(), before.stored_bytes());
  EXPECT_EQ(a_.work(), of_a);
  // Another one's digest as a parent is a hint that leads nowhere.
  b_.add_forged("forged", kBlocks, {chunk_of(secret)});
  const uint64_t stored = b_.stored_bytes();
  import(b_, user("mine"), raw(1, {3}), b_.store().use(user("forged")).value().get());
  EXPECT_GE(b_.stored_bytes() - stored, kBlocks * image::kBlockBytes);
  EXPECT_EQ(a_.work(), of_a);
}

// Only templates are for all.
TEST_F(ImageDomainsTest, AnImageOfThePublicsUserOrOfAnotherTenantHasNoNameHere) {
  import(public_, user("disk"), raw(1));
  import(a_, user("other"), raw(2));
  for (const char* const name : {"disk", "other"}) {
    EXPECT_EQ(b_.store().use(user(name)).error().kind(), ErrorKind::kNotFound) << name;
    EXPECT_EQ(b_.images().find(name).error().kind(), ErrorKind::kNotFound) << name;
    EXPECT_TRUE(b_.images().check_new(name)) << name;
  }
}

TEST_F(ImageDomainsTest, TenantsReadATemplateThroughWhatIsPublic) {
  const UniqueFd disk = raw(1);
  const std::shared_ptr<OpenImage> image = import(public_, disk_of_template("debian"), disk);
  const auto of_a = a_.client("template:debian", kBlocks), of_b = b_.client("template:debian", kBlocks);
  for (uint64_t block = 0; block < kBlocks; block++) ASSERT_EQ(read_block(*of_a, block).value(), block_bytes(block, 1));
  const StoreWork once = public_.work();
  for (uint64_t block = 0; block < kBlocks; block++) ASSERT_EQ(read_block(*of_b, block).value(), block_bytes(block, 1));
  EXPECT_EQ(public_.work().read_bytes, once.read_bytes) << "the frames were decoded already";

  public_.store().warm(*image, disk.get());
  ASSERT_EQ(read_block(*of_b, 7).value(), block_bytes(7, 1));
  EXPECT_EQ(b_.images().server().usage().held_chunks, 1u);
  EXPECT_GT(public_.store().cache().usage().leased_bytes, 0u);
  EXPECT_EQ(a_.store().cache().usage().chunks + b_.store().cache().usage().chunks, 0u) << "one copy for all";
}

TEST_F(ImageDomainsTest, ATenantsVersionOfATemplateCostsItsChangesAndOutlivesTheTemplate) {
  std::shared_ptr<OpenImage> base = import(public_, disk_of_template("debian"), raw(1));
  const UniqueFd changed = raw(1, {40});
  import(b_, user("mine"), changed, base.get());
  EXPECT_LE(b_.stored_bytes(), 8 * image::kBlockBytes);
  EXPECT_LE(b_.images().get("mine")->unique_bytes, 3 * image::kBlockBytes);

  base.reset();
  ASSERT_TRUE(public_.store().keep_templates({}));
  ASSERT_TRUE(public_.store().collect());
  {
    const auto client = b_.client("mine", kBlocks);
    for (uint64_t block = 0; block < kBlocks; block++)
      ASSERT_EQ(read_block(*client, block).value(), block_bytes(block, block == 40 ? 1001 : 1)) << block;
  }
  while (b_.images().server().usage().connections != 0) std::this_thread::yield();

  ASSERT_TRUE(b_.images().remove("mine"));
  ASSERT_FALSE(public_.store().wants_collection());
  ASSERT_TRUE(b_.store().collect());
  EXPECT_TRUE(public_.store().wants_collection()) << "what it referred to may be garbage now";
  ASSERT_TRUE(public_.store().collect());
  EXPECT_EQ(public_.stored_bytes(), 0u);
}

TEST_F(ImageDomainsTest, AChunkOfATemplateStaysForTheTenantsImageThatNamesIt) {
  import(public_, disk_of_template("debian"), raw(1));
  import(b_, user("same"), raw(1));
  EXPECT_EQ(b_.stored_bytes(), 0u);
  ASSERT_TRUE(public_.store().keep_templates({}));
  ASSERT_TRUE(public_.store().collect());
  EXPECT_EQ(read_block(*b_.client("same", kBlocks), 7).value(), block_bytes(7, 1));
}

// The public cache has room for one chunk, and a reader of a tenant holds it.
TEST_F(ImageDomainsTest, WhatReadersHoldOfThePublicCacheIsAskedBackFromThem) {
  Domain common(nullptr, 1, image::kBlockBytes), tenant(&common);
  const UniqueFd disk = raw_file(2 * kChunkBlocks, {0, kChunkBlocks});
  const std::shared_ptr<OpenImage> image = import(common, disk_of_template("debian"), disk);
  const Digest first = image->chunk(0).value();
  ASSERT_TRUE(common.store().cache().fill(first, common.store().chunks().get(first).value()));
  ChunkReader reader(tenant.images().server().attach(tenant.store().use(disk_of_template("debian")).value()).value());
  ASSERT_TRUE(reader.hello());
  reader.send(image::Ask{1, 0});
  ASSERT_TRUE(reader.expect<image::Chunk>());
  reader.send(image::Ask{2, kChunkBlocks});
  ASSERT_TRUE(reader.expect<image::Data>());
  EXPECT_EQ(reader.expect<image::GiveBack>(), image::GiveBack{0});
}

TEST_F(ImageDomainsTest, WhatStandsBeforeIsNeverItselfPublic) {
  ImageStoreOptions options;
  options.directory = directory_.path + "/third";
  options.common = &a_.store();
  EXPECT_EQ(ImageStore::open(std::move(options)).error().kind(), ErrorKind::kInvalid);
}

}  // namespace
}  // namespace ramet::host
