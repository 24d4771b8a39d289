// Names, uses and collections of a host's images.
#include "host/images/image_store.h"

#include "host/images/testing/image_fixture.h"

namespace ramet::host {
namespace {

using testing::Bytes;

constexpr ImageId user(const char* name) { return {ImageSpace::kUser, name}; }

class ImageStoreTest : public testing::ImageFixture {};

TEST_F(ImageStoreTest, AnImportedImageComesBackByteForByteAlsoAfterAReopen) {
  const UniqueFd raw = raw_file(5000, {0, 17, 4095, 4096, 4999});
  imported("disk", raw);
  reopen();
  const std::shared_ptr<OpenImage> image = images_->use(user("disk")).value();
  EXPECT_EQ(image->blocks(), 5000u);
  EXPECT_EQ(content(*image), content(raw));
}

TEST_F(ImageStoreTest, ANameIsTakenOnce) {
  const UniqueFd raw = raw_file(10, {1});
  imported("disk", raw);
  const Result<std::shared_ptr<OpenImage>> again = images_->import_raw(user("disk"), raw.get(), nullptr);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind(), ErrorKind::kExists);
}

TEST_F(ImageStoreTest, NamesOfUsersAndOfTemplatesAreApart) {
  const UniqueFd raw = raw_file(10, {1});
  imported("disk", raw, ImageSpace::kTemplate);
  EXPECT_FALSE(images_->use(user("disk")));
  EXPECT_EQ(images_->names(ImageSpace::kUser)->size(), 0u);
  EXPECT_FALSE(images_->import_raw(user("../templates/x"), raw.get(), nullptr));
}

TEST_F(ImageStoreTest, AnImportThatDoesNotFitIsRefusedBeforeItBegins) {
  images_.reset();
  ImageStoreOptions options;
  options.directory = directory_.path + "/store";
  options.admit = [](uint64_t) -> Status { return fail(ErrorKind::kNoSpace, "full"); };
  images_ = ImageStore::open(options).value();
  const Result<std::shared_ptr<OpenImage>> refused = images_->import_raw(user("disk"), raw_file(10, {1}).get(), nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::kNoSpace);
  EXPECT_EQ(images_->chunks().totals()->packs, 0u);
}

TEST_F(ImageStoreTest, ACollectionLeavesWhatHasANameAndTakesTheRest) {
  const UniqueFd kept = raw_file(100, {1, 2, 3}, 1), gone = raw_file(100, {1, 2, 3}, 2);
  imported("kept", kept);
  imported("gone", gone);
  ASSERT_TRUE(images_->remove(user("gone")));
  EXPECT_EQ(images_->collect()->chunks_removed, 2u);  // a chunk, and its page
  EXPECT_EQ(content(*images_->use(user("kept")).value()), content(kept));
}

TEST_F(ImageStoreTest, ARemovedImageStaysAsLongAsSomebodyUsesIt) {
  const UniqueFd raw = raw_file(100, {1, 2, 3});
  std::shared_ptr<OpenImage> image = imported("disk", raw);
  ASSERT_TRUE(images_->remove(user("disk")));
  EXPECT_EQ(images_->collect()->chunks_removed, 0u);
  EXPECT_EQ(content(*image), content(raw));
  EXPECT_FALSE(images_->wants_collection());
  image.reset();
  EXPECT_TRUE(images_->wants_collection());
  EXPECT_EQ(images_->collect()->chunks_removed, 2u);
}

TEST_F(ImageStoreTest, WhatASnapshotNamesIsKeptUntilItIsRemoved) {
  commit::SnapshotRecord record;
  {
    chunk::Batch batch = images_->chunks().begin();
    record.disk = commit::import_raw(raw_file(100, {1, 2, 3}).get(), batch, nullptr).value();
    ASSERT_TRUE(batch.commit());
    ASSERT_TRUE(images_->snapshots().add("snap", batch, record));
    EXPECT_EQ(images_->snapshots().add("snap", batch, record).error().kind(), ErrorKind::kExists);
  }
  ASSERT_TRUE(images_->snapshots().replace_details("snap", "{}"));
  reopen();
  EXPECT_EQ(images_->collect()->chunks_removed, 0u);
  EXPECT_EQ(images_->snapshots().ids().value(), std::vector<std::string>{"snap"});
  EXPECT_EQ(images_->snapshots().get("snap")->details, "{}");
  EXPECT_EQ(images_->snapshots().get("snap")->disk, record.disk);
  EXPECT_FALSE(images_->wants_collection());

  ASSERT_TRUE(images_->snapshots().remove("snap"));
  EXPECT_TRUE(images_->wants_collection());
  EXPECT_EQ(images_->collect()->chunks_removed, 2u);  // a chunk, and its page
}

TEST_F(ImageStoreTest, DisksOfTemplatesGoWhenNeitherATemplateNorAMachineHasThem) {
  imported("wanted", raw_file(100, {1}, 1), ImageSpace::kTemplate);
  imported("unwanted", raw_file(100, {1}, 2), ImageSpace::kTemplate);
  const std::shared_ptr<OpenImage> used = imported("used", raw_file(100, {1}, 3), ImageSpace::kTemplate);
  ASSERT_TRUE(images_->keep_templates({"wanted"}));
  EXPECT_EQ(images_->names(ImageSpace::kTemplate).value(), (std::vector<std::string>{"used", "wanted"}));
}

TEST_F(ImageStoreTest, WhoUsesAnImageSharesItsManifest) {
  const std::shared_ptr<OpenImage> first = imported("disk", raw_file(100, {1}));
  EXPECT_EQ(images_->use(user("disk")).value(), first);
}

TEST_F(ImageStoreTest, WarmingFillsTheCacheUpToItsSizeAndNotBeyond) {
  reopen(40u << 20);
  const UniqueFd raw = raw_file(4 * image::kChunkBlocks, {0, image::kChunkBlocks, 2 * image::kChunkBlocks});
  const std::shared_ptr<OpenImage> image = imported("disk", raw);
  images_->warm(*image, raw.get());
  EXPECT_TRUE(images_->cache().find(image->chunk(0).value()));
  EXPECT_LE(images_->cache().usage().bytes, 40u << 20);
}

}  // namespace
}  // namespace ramet::host
