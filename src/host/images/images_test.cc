// What users do with their images: in, out, compare, measure.
#include "host/images/images.h"

#include <cstdlib>
#include <filesystem>

#include "host/images/testing/image_fixture.h"

namespace ramet::host {
namespace {

using image::kBlockBytes;
using testing::Bytes;

class ImagesTest : public testing::ImageFixture {
 protected:
  void SetUp() override { open(); }
  void open() {
    own_.reset();
    Images::Options options;
    options.store.directory = directory_.path + "/store";
    options.store.cache_bytes = 64u << 20;
    options.socket = directory_.path + "/chunk.sock";
    options.store.admit = [this](uint64_t) { return full_ ? Status(fail(ErrorKind::kNoSpace, "the disk is full")) : Status(); };
    own_ = Images::open(std::move(options)).value();
  }
  // In pieces that respect no border.
  Result<std::shared_ptr<OpenImage>> upload(const std::string& name, const Bytes& bytes, const std::string& parent = {}) {
    TRY_ASSIGN(const std::unique_ptr<ImageUpload> upload, own_->upload(name));
    for (size_t at = 0; at < bytes.size(); at += 100'001)
      TRY(upload->write(std::span(bytes).subspan(at, std::min<size_t>(100'001, bytes.size() - at))));
    return upload->finish({.format = "raw", .parent = parent});
  }
  Bytes download(const std::string& name, const ExportOptions& options = {}) {
    const std::unique_ptr<ImageDownload> download = own_->download(name, options).value();
    Bytes out;
    for (;;) {
      const std::span<const std::byte> piece = download->next().value();
      if (piece.empty()) return out;
      out.insert(out.end(), piece.begin(), piece.end());
    }
  }
  size_t unfinished() const {
    std::error_code error;
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(directory_.path + "/store/incoming", error), {}));
  }

  bool full_ = false;
  std::unique_ptr<Images> own_;
};

TEST_F(ImagesTest, WhatGoesInComesOut) {
  const Bytes bytes = content(raw_file(5000, {0, 1, 2, 100, 4095, 4096, 4999}));
  ASSERT_TRUE(upload("disk", bytes));
  EXPECT_EQ(download("disk"), bytes);
  EXPECT_EQ(own_->get("disk")->bytes, bytes.size());
  EXPECT_EQ(unfinished(), 0u);
}

TEST_F(ImagesTest, AFileThatIsNoWholeNumberOfBlocksIsFilledUpWithZeros) {
  Bytes bytes = block_bytes(1);
  bytes.resize(kBlockBytes + 100, std::byte{7});
  ASSERT_TRUE(upload("disk", bytes));
  bytes.resize(2 * kBlockBytes);
  EXPECT_EQ(download("disk"), bytes);
}

TEST_F(ImagesTest, AnUploadThatIsGivenUpLeavesNothing) {
  {
    const std::unique_ptr<ImageUpload> upload = own_->upload("disk").value();
    ASSERT_TRUE(upload->write(block_bytes(1)));
    EXPECT_EQ(unfinished(), 1u);
  }
  EXPECT_EQ(unfinished(), 0u);
  EXPECT_EQ(own_->get("disk").error().kind(), ErrorKind::kNotFound);
}

TEST_F(ImagesTest, WhatAKilledDaemonLeftOfAnUploadGoesAtTheNextStart) {
  std::filesystem::create_directories(directory_.path + "/store/incoming");
  ASSERT_TRUE(replace_file(directory_.path + "/store/incoming/0", "part of something"));
  open();
  EXPECT_EQ(unfinished(), 0u);
}

TEST_F(ImagesTest, ANameIsTakenOnceAndAnEmptyFileIsNoImage) {
  ASSERT_TRUE(upload("disk", block_bytes(1)));
  EXPECT_EQ(upload("disk", block_bytes(1)).error().kind(), ErrorKind::kExists);
  EXPECT_EQ(upload("empty", {}).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(upload("no/name", block_bytes(1)).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(upload("child", block_bytes(1), "unknown").error().kind(), ErrorKind::kNotFound);
}

// A tar of one file, made by tar itself.
Bytes archive_of(const std::string& directory, uint64_t file_bytes) {
  const UniqueFd file = open_file(directory + "/noise", O_RDWR | O_CREAT | O_TRUNC, 0600).value();
  EXPECT_TRUE(pwrite_all(file.get(), chunk::testing::noise(file_bytes, 7), 0));
  EXPECT_EQ(std::system(("tar -C " + directory + " -cf " + directory + "/noise.tar noise").c_str()), 0);
  const UniqueFd tar = open_file(directory + "/noise.tar", O_RDONLY).value();
  Bytes out(file_size(tar.get()).value());
  EXPECT_TRUE(pread_exact(tar.get(), out, 0));
  return out;
}

TEST_F(ImagesTest, AFullDiskEndsAConversionAndLeavesNothing) {
  const Bytes tar = archive_of(directory_.path, 1 << 20);
  const std::unique_ptr<ImageUpload> upload = own_->upload("files").value();
  ASSERT_TRUE(upload->write(tar));
  full_ = true;
  const Error error = upload->finish({}).error();
  EXPECT_EQ(error.kind(), ErrorKind::kNoSpace);
  EXPECT_EQ(error.message(), directory_.path + "/store/incoming: the disk is full");
  EXPECT_EQ(own_->get("files").error().kind(), ErrorKind::kNotFound);
  EXPECT_EQ(unfinished(), 1u) << "the upload alone, while it lives";
  full_ = false;
  EXPECT_TRUE(upload->finish({}));  // there is room again
  EXPECT_EQ(own_->get("files")->bytes, 1u << 30);
}

TEST_F(ImagesTest, AConversionThatNobodyWaitsForEnds) {
  const Bytes tar = archive_of(directory_.path, 1 << 20);
  const std::unique_ptr<ImageUpload> upload = own_->upload("files").value();
  ASSERT_TRUE(upload->write(tar));
  EXPECT_EQ(upload->finish({.given_up = [] { return true; }}).error().kind(), ErrorKind::kCancelled);
  EXPECT_EQ(own_->get("files").error().kind(), ErrorKind::kNotFound);
}

TEST_F(ImagesTest, AFullDiskRefusesAnExportThatNeedsRoom) {
  ASSERT_TRUE(upload("disk", block_bytes(1)));
  full_ = true;
  EXPECT_EQ(own_->download("disk", {.format = "qcow2"}).error().kind(), ErrorKind::kNoSpace);
  EXPECT_TRUE(own_->download("disk"));
  EXPECT_EQ(own_->download("disk", {.format = "vmdk"}).error().kind(), ErrorKind::kInvalid);
}

class FilesOfAnImage : public ImagesTest {
 protected:
  void SetUp() override {
    ImagesTest::SetUp();
    const std::unique_ptr<ImageUpload> upload = own_->upload("files").value();
    ASSERT_TRUE(upload->write(archive_of(directory_.path, 1 << 20)));
    ASSERT_TRUE(upload->finish({}));
  }
};

TEST_F(FilesOfAnImage, ComeOutAsATar) {
  const Bytes tar = download("files", {.format = "tar"});
  ASSERT_TRUE(replace_file(directory_.path + "/out.tar", {reinterpret_cast<const char*>(tar.data()), tar.size()}));
  EXPECT_EQ(std::system(("tar -C " + directory_.path + " -df " + directory_.path + "/out.tar ./noise").c_str()), 0);
  EXPECT_EQ(unfinished(), 0u);
}

TEST_F(FilesOfAnImage, ComeOutAsAnOciImageThatIsTakenAgain) {
  const Bytes archive = download("files", {.format = "oci"});
  EXPECT_EQ(download("files", {.format = "oci"}), archive) << "the same bytes each time";
  const std::unique_ptr<ImageUpload> upload = own_->upload("again").value();
  ASSERT_TRUE(upload->write(archive));
  ASSERT_TRUE(upload->finish({.tag = "files"})) << "it is known as what it is, and has its name";
  EXPECT_EQ(download("again", {.format = "tar"}), download("files", {.format = "tar"}));
}

TEST_F(FilesOfAnImage, AreWorkThatNeedsRoomAndSomebodyWhoWaits) {
  for (const char* format : {"tar", "oci"}) {
    full_ = false;
    EXPECT_EQ(own_->download("files", {.format = format, .given_up = [] { return true; }}).error().kind(),
              ErrorKind::kCancelled);
    full_ = true;
    EXPECT_EQ(own_->download("files", {.format = format}).error().kind(), ErrorKind::kNoSpace);
    EXPECT_EQ(unfinished(), 0u);
  }
}

TEST_F(ImagesTest, ADiskWithoutFilesHasNoTar) {
  ASSERT_TRUE(upload("disk", block_bytes(1)));
  const Error error = own_->download("disk", {.format = "tar"}).error();
  EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
  EXPECT_EQ(error.message(), "the disk does not begin with an ext4 file system, whose files could be exported");
}

TEST_F(ImagesTest, TheDiskOfATemplateIsReadByItsDigestAndChangedByNobody) {
  const UniqueFd raw = raw_file(100, {1});
  ASSERT_TRUE(own_->store().import_raw({ImageSpace::kTemplate, "abc"}, raw.get(), nullptr));
  EXPECT_EQ(download("template:abc"), content(raw));
  EXPECT_EQ(own_->remove("template:abc").error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(own_->upload("template:new").error().kind(), ErrorKind::kInvalid);
  EXPECT_TRUE(own_->list()->empty());
}

TEST_F(ImagesTest, ADiffNamesTheBlocks) {
  Bytes bytes = content(raw_file(5000, {0, 1, 2, 4999}));
  ASSERT_TRUE(upload("a", bytes));
  for (const size_t block : {1u, 2u, 4100u}) bytes[block * kBlockBytes] ^= std::byte{1};
  ASSERT_TRUE(upload("b", bytes, "a"));
  const ImageDiff diff = own_->diff("a", "b").value();
  EXPECT_EQ(diff.changed_chunks, 2u);
  EXPECT_EQ(diff.changed_blocks, 3u);
  EXPECT_EQ(diff.ranges, (std::vector<image::BlockRange>{{1, 2}, {4100, 1}}));
  EXPECT_FALSE(diff.truncated);
}

TEST_F(ImagesTest, ImagesOfDifferentSizeAreNotCompared) {
  ASSERT_TRUE(upload("a", Bytes(kBlockBytes)));
  ASSERT_TRUE(upload("b", Bytes(2 * kBlockBytes)));
  EXPECT_EQ(own_->diff("a", "b").error().kind(), ErrorKind::kInvalid);
}

TEST_F(ImagesTest, AVersionOfAnImageCostsItsChanges) {
  std::vector<uint64_t> written;
  for (uint64_t block = 0; block < 320; block++) written.push_back(block);
  Bytes bytes = content(raw_file(4096, written));
  ASSERT_TRUE(upload("a", bytes));
  const uint64_t alone = own_->get("a")->unique_bytes;
  EXPECT_GT(alone, 300 * kBlockBytes);
  bytes[0] ^= std::byte{1};
  ASSERT_TRUE(upload("b", bytes, "a"));
  EXPECT_GT(own_->get("b")->stored_bytes, 300 * kBlockBytes);
  EXPECT_LT(own_->get("b")->unique_bytes, 4 * kBlockBytes);
  EXPECT_LT(own_->get("a")->unique_bytes, alone / 2);
}

TEST_F(ImagesTest, AScrubLooksAtAllPacksInTurnAndFindsDamage) {
  ASSERT_TRUE(upload("a", block_bytes(1)));
  ASSERT_TRUE(upload("b", block_bytes(2)));
  Scrubber scrubber(own_->store());
  const uint64_t before = own_->store().pack_reads().local_bytes;
  EXPECT_EQ(scrubber.next_pack() + scrubber.next_pack() + scrubber.next_pack(), 0u);
  EXPECT_EQ(own_->report()->checked_bytes, own_->store().pack_reads().local_bytes - before);
  for (const auto& file : std::filesystem::directory_iterator(directory_.path + "/store/packs")) {
    if (file.path().extension() != ".pack") continue;
    const UniqueFd fd = open_file(file.path(), O_RDWR).value();
    ASSERT_TRUE(pwrite_all(fd.get(), Bytes(100, std::byte{1}), 4100));
  }
  EXPECT_GE(scrubber.next_pack(), 1u);
  EXPECT_GE(scrubber.next_pack(), 1u);
}

TEST_F(ImagesTest, TheReportCounts) {
  ASSERT_TRUE(upload("a", block_bytes(1)));
  const StoreReport report = own_->report().value();
  EXPECT_EQ(report.images, 1u);
  EXPECT_EQ(report.template_disks, 0u);
  EXPECT_EQ(report.chunks, 2u);
  EXPECT_GT(report.pack_bytes, kBlockBytes);
}

}  // namespace
}  // namespace ramet::host
