// Raw images in and out of the store: the bytes are the same, the space is what was written.
#include "commit/raw_image.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <random>

#include "base/clock.h"
#include "base/file.h"
#include "chunk/directory_storage.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::commit {
namespace {

using image::kBlockBytes;

class RawImageTest : public ::testing::Test {
 protected:
  RawImageTest() {
    store_ =
        chunk::Store::open(chunk::DirectoryStorage::open(directory_.path + "/packs").value(), directory_.path + "/index.db", {})
            .value();
  }
  UniqueFd new_file(uint64_t size) {
    const std::string path = directory_.path + "/file" + std::to_string(files_++);
    UniqueFd fd = open_file(path, O_RDWR | O_CREAT | O_EXCL, 0600).value();
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size)), 0);
    return fd;
  }
  void write_noise(const UniqueFd& fd, uint64_t offset, size_t bytes) {
    std::vector<std::byte> noise(bytes);
    for (std::byte& b : noise) b = static_cast<std::byte>(random_());
    EXPECT_TRUE(pwrite_all(fd.get(), noise, offset));
  }
  static std::vector<std::byte> content(const UniqueFd& fd) {
    std::vector<std::byte> out(file_size(fd.get()).value());
    EXPECT_TRUE(pread_exact(fd.get(), out, 0));
    return out;
  }
  static uint64_t allocated(const UniqueFd& fd) {
    struct stat st;
    EXPECT_EQ(::fstat(fd.get(), &st), 0);
    return static_cast<uint64_t>(st.st_blocks) * 512;
  }
  Result<image::ManifestRoot> imported(const UniqueFd& file, image::Manifest* parent = nullptr,
                                       const OnProgress& progress = {}) {
    chunk::Batch batch = store_->begin();
    TRY_ASSIGN(image::ManifestRoot root, import_raw(file.get(), batch, parent, progress));
    TRY(batch.commit());
    return root;
  }
  UniqueFd exported(const image::ManifestRoot& root) {
    UniqueFd out = new_file(0);
    image::Manifest manifest = manifest_in(*store_, root);
    const Status done = export_raw(manifest, *store_, out.get());
    EXPECT_TRUE(done) << done.error().to_string();
    return out;
  }
  uint64_t stored_bytes() const { return store_->totals()->pack_bytes; }

  chunk::testing::TemporaryDirectory directory_;
  std::unique_ptr<chunk::Store> store_;
  std::mt19937 random_{1};
  int files_ = 0;
};

TEST_F(RawImageTest, ComesOutAsItWentIn) {
  const UniqueFd in = new_file(50 << 20);
  write_noise(in, 0, 10000);
  write_noise(in, 16 << 20, 3 << 20);
  write_noise(in, (50 << 20) - 5000, 5000);
  uint64_t last = 0;
  const Result<image::ManifestRoot> root = imported(in, nullptr, [&](const Progress& p) {
    EXPECT_GE(p.done_bytes, last);
    EXPECT_EQ(p.total_bytes, 50u << 20);
    last = p.done_bytes;
  });
  ASSERT_TRUE(root) << root.error().to_string();
  EXPECT_EQ(last, 50u << 20);
  const UniqueFd out = exported(*root);
  EXPECT_EQ(content(out), content(in));
  EXPECT_LE(allocated(out), 4u << 20);  // the holes are holes
}

TEST_F(RawImageTest, APartOfABlockAtTheEndIsFilledWithZeros) {
  const UniqueFd in = new_file(0);
  write_noise(in, 0, 10000);
  const image::ManifestRoot root = imported(in).value();
  EXPECT_EQ(root.blocks, 3u);
  std::vector<std::byte> expected = content(in);
  expected.resize(3 * kBlockBytes);
  EXPECT_EQ(content(exported(root)), expected);
}

TEST_F(RawImageTest, NothingIsThereBeforeTheBatchIsCommitted) {
  const UniqueFd in = new_file(16 << 20);
  write_noise(in, 0, 100000);
  image::ManifestRoot root;
  {
    chunk::Batch batch = store_->begin();
    root = import_raw(in.get(), batch, nullptr).value();
  }
  EXPECT_EQ(store_->get(root.pages[0]).error().kind(), ErrorKind::kNotFound);
  EXPECT_EQ(imported(in).value(), root);
  EXPECT_TRUE(store_->get(root.pages[0]));
}

TEST_F(RawImageTest, AnEmptyFileIsNoImage) { EXPECT_EQ(imported(new_file(0)).error().kind(), ErrorKind::kInvalid); }

TEST_F(RawImageTest, IsNotExportedOverSomethingElse) {
  const UniqueFd in = new_file(kBlockBytes), other = new_file(100);
  image::Manifest manifest = manifest_in(*store_, imported(in).value());
  EXPECT_EQ(export_raw(manifest, *store_, other.get()).error().kind(), ErrorKind::kInvalid);
}

TEST_F(RawImageTest, ALargeEmptyDiskTakesNoTimeAndNoSpace) {
  const UniqueFd in = new_file(128ull << 30);
  const Deadline second = deadline_after(std::chrono::seconds(1));
  const image::ManifestRoot root = imported(in).value();
  EXPECT_LT(MonotonicClock::now(), second);
  EXPECT_LE(image::encode_manifest_root(root).size() + stored_bytes(), 65536u);
}

// 20 blocks of noise all over 128 GiB, each in a chunk and nearly all in a page of their own; then zeros again.
TEST_F(RawImageTest, ScatteredWritesCostThemselvesAndTheirPages) {
  const UniqueFd in = new_file(128ull << 30);
  image::Manifest before = manifest_in(*store_, imported(in).value());
  uint64_t bytes = stored_bytes();
  for (uint64_t i = 0; i < 20; i++) write_noise(in, i * 6'871'947'673 / kBlockBytes * kBlockBytes, kBlockBytes);
  const image::ManifestRoot after = imported(in, &before).value();
  size_t pages = 0;
  for (size_t i = 0; i < after.pages.size(); i++) pages += after.pages[i] != before.root().pages[i];
  EXPECT_GE(pages, 18u);
  EXPECT_LE(stored_bytes() - bytes, 20 * kBlockBytes * 11 / 10 + pages * 16384);
  bytes = stored_bytes();
  ASSERT_EQ(::ftruncate(in.get(), 0), 0);
  ASSERT_EQ(::ftruncate(in.get(), 128ll << 30), 0);
  EXPECT_EQ(imported(in).value(), before.root());
  EXPECT_EQ(stored_bytes(), bytes);
}

TEST_F(RawImageTest, ALostChunkIsAnErrorAndNotZeros) {
  const UniqueFd in = new_file(16 << 20);
  write_noise(in, 0, 100000);
  image::Manifest manifest = manifest_in(*store_, imported(in).value());
  ASSERT_TRUE(manifest.set(0, chunk::kZeroBlockDigest));
  EXPECT_EQ(export_raw(manifest, *store_, new_file(0).get()).error().kind(), ErrorKind::kNotFound);
}

}  // namespace
}  // namespace ramet::commit
