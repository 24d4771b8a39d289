// Overlays become images: the bytes are those of the disk, the space is that of the blocks written, and only what an overlay
// touched is read. Space is that of all files of the store, its index included.
#include "commit/disk_commit.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/clock.h"
#include "base/file.h"
#include "chunk/testing/store_fixture.h"
#include "commit/catalogue.h"
#include "commit/raw_image.h"
#include "image/raw_source.h"

namespace ramet::commit {
namespace {

using chunk::testing::noise;
using image::BlockRange;
using image::kBlockBytes;
using image::kChunkBlocks;
using image::OverlayStack;

uint64_t bytes_below(const std::string& directory) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}
uint64_t allocated_below(const std::string& directory) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    struct stat st {};
    EXPECT_EQ(::lstat(entry.path().c_str(), &st), 0);
    bytes += static_cast<uint64_t>(st.st_blocks) * 512;
  }
  return bytes;
}

// Counts what is asked of the disk below.
class WatchedSource final : public image::BlockSource {
 public:
  WatchedSource(std::unique_ptr<BlockSource> below, uint64_t& blocks_read) : below_(std::move(below)), read_(blocks_read) {}
  uint64_t size_blocks() const override { return below_->size_blocks(); }
  Result<bool> read(BlockRange range, std::span<const iovec> to, image::Wait wait) const override {
    read_ += range.count;
    return below_->read(range, to, wait);
  }

 private:
  std::unique_ptr<BlockSource> below_;
  uint64_t& read_;
};

class DiskCommitTest : public chunk::testing::StoreFixture {
 protected:
  void SetUp() override {
    StoreFixture::SetUp();
    std::filesystem::create_directory(overlays_path());
  }
  std::string overlays_path() const { return directory_.path + "/overlays"; }
  image::OverlayFiles new_overlay() {
    const std::string id = std::to_string(overlays_++), path = overlays_path() + "/" + id;
    const auto open = [&](const char* suffix, int flags) { return open_file(path + suffix, flags, 0600).value(); };
    UniqueFd data = open(".data", O_RDWR | O_CREAT), log = open(".log", O_RDWR | O_CREAT);
    return image::overlay_from_descriptors(id, std::move(data), open(".data", O_RDONLY), std::move(log),
                                           open(".log", O_RDONLY));
  }
  std::unique_ptr<OverlayStack> disk_over(std::unique_ptr<image::BlockSource> base, uint64_t blocks) {
    return OverlayStack::open(std::move(base), blocks, {}, new_overlay(), image::HostHistory::kSameBoot).value();
  }
  UniqueFd base_file(uint64_t bytes) {
    UniqueFd file = open_file(directory_.path + "/base.raw", O_RDWR | O_CREAT, 0600).value();
    EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
    return file;
  }
  std::unique_ptr<image::BlockSource> source_of(const UniqueFd& file) {
    const uint64_t blocks = file_size(file.get()).value() / kBlockBytes;
    return std::make_unique<image::RawSource>(std::make_unique<image::PosixFile>(reopen_read(file)), blocks);
  }
  static UniqueFd reopen_read(const UniqueFd& file) { return ramet::reopen(file.get(), O_RDONLY).value(); }

  static void write(OverlayStack& disk, uint64_t block, const chunk::testing::Bytes& bytes) {
    const iovec v{const_cast<std::byte*>(bytes.data()), bytes.size()};
    ASSERT_TRUE(disk.write({block, bytes.size() / kBlockBytes}, {&v, 1}));
  }
  image::ManifestRoot imported(const UniqueFd& file) {
    chunk::Batch batch = store_->begin();
    image::ManifestRoot root = import_raw(file.get(), batch, nullptr).value();
    EXPECT_TRUE(batch.commit());
    return root;
  }
  image::ManifestRoot committed(const OverlayStack& disk, const image::ManifestRoot& base) {
    image::Manifest manifest = manifest_in(*store_, base);
    chunk::Batch batch = store_->begin();
    const Result<DiskCommit> done = commit_disk(disk, manifest, batch);
    EXPECT_TRUE(done) << done.error().to_string();
    if (done) report_ = *done;
    EXPECT_TRUE(batch.commit());
    return manifest.root();
  }
  // Of the store, which is closed, so that its index is what it will be.
  uint64_t stored_bytes_on_disk() {
    store_.reset();
    const uint64_t bytes = bytes_below(packs_path()) + std::filesystem::file_size(index_path());
    reopen();
    return bytes;
  }
  // Block by block against what the disk says.
  void expect_same(const OverlayStack& disk, const image::ManifestRoot& root, BlockRange range) {
    image::Manifest manifest = manifest_in(*store_, root);
    for (uint64_t block = range.first; block < range.end(); block++) {
      chunk::testing::Bytes expected(kBlockBytes), got(kBlockBytes);
      const iovec v{expected.data(), expected.size()};
      ASSERT_TRUE(disk.read({block, 1}, {&v, 1}, image::Wait::kAllowed));
      const Digest name = manifest.chunk(block / kChunkBlocks).value();
      if (name != image::kZeros) {
        ASSERT_TRUE(store_->read(name, static_cast<uint32_t>(block % kChunkBlocks), got));
      }
      ASSERT_EQ(got, expected) << "block " << block;
    }
  }

  DiskCommit report_;
  int overlays_ = 0;
};

TEST_F(DiskCommitTest, TheImageIsTheDisk) {
  const UniqueFd file = base_file((40 << 20) + 8192);
  ASSERT_TRUE(pwrite_all(file.get(), noise(30 << 20, 1), 1 << 20));
  const image::ManifestRoot base = imported(file);
  const std::unique_ptr<OverlayStack> disk = disk_over(source_of(file), base.blocks);
  write(*disk, 300, noise(5 * kBlockBytes, 2));
  ASSERT_TRUE(disk->freeze().value());
  ASSERT_TRUE(disk->start_writable(new_overlay()));
  write(*disk, 302, noise(kBlockBytes, 3));
  ASSERT_TRUE(disk->zero({303, 7}));
  ASSERT_TRUE(disk->zero({2 * kChunkBlocks + 300, 7}));
  write(*disk, base.blocks - 1, noise(kBlockBytes, 4));
  const image::ManifestRoot after = committed(*disk, base);
  EXPECT_EQ(report_.touched_chunks, 2u);
  EXPECT_EQ(report_.changed_chunks, 2u);
  expect_same(*disk, after, {0, 1000});
  expect_same(*disk, after, {kChunkBlocks, 300});
  expect_same(*disk, after, {2 * kChunkBlocks + 290, 20});
  expect_same(*disk, after, {base.blocks - 10, 10});
}

TEST_F(DiskCommitTest, OnlyTouchedChunksAreRead) {
  const UniqueFd file = base_file(64 << 20);
  const image::ManifestRoot base = imported(file);
  uint64_t blocks_read = 0;
  const std::unique_ptr<OverlayStack> disk =
      disk_over(std::make_unique<WatchedSource>(source_of(file), blocks_read), base.blocks);
  write(*disk, 2 * kChunkBlocks + 17, noise(3 * kBlockBytes, 1));
  ASSERT_TRUE(disk->zero({kChunkBlocks, kChunkBlocks}));
  committed(*disk, base);
  EXPECT_EQ(report_.touched_chunks, 2u);
  EXPECT_EQ(blocks_read, kChunkBlocks - 3);  // of the chunk that is partly the base's
}

TEST_F(DiskCommitTest, WhatEndsAsItBeganCostsNothing) {
  const UniqueFd file = base_file(48 << 20);
  const chunk::testing::Bytes old = noise(4 * kBlockBytes, 1);
  ASSERT_TRUE(pwrite_all(file.get(), old, 100 * kBlockBytes));
  ASSERT_TRUE(pwrite_all(file.get(), noise(kBlockBytes, 2), kChunkBlocks * kBlockBytes));
  const image::ManifestRoot base = imported(file);
  const std::unique_ptr<OverlayStack> disk = disk_over(source_of(file), base.blocks);
  const uint64_t before = stored_bytes_on_disk();

  write(*disk, 100, noise(4 * kBlockBytes, 3));
  write(*disk, 100, old);
  write(*disk, 2 * kChunkBlocks + 5, chunk::testing::Bytes(kBlockBytes));  // zeros over zeros
  EXPECT_EQ(committed(*disk, base), base);
  EXPECT_EQ(report_.touched_chunks, 2u);
  EXPECT_EQ(report_.changed_chunks, 0u);
  EXPECT_EQ(stored_bytes_on_disk(), before);

  // A discarded chunk leaves the manifest; what is stored anew is the page that says so.
  ASSERT_TRUE(disk->zero({kChunkBlocks, 1}));
  image::Manifest after = manifest_in(*store_, committed(*disk, base));
  EXPECT_EQ(after.chunk(1).value(), image::kZeros);
  EXPECT_LE(stored_bytes_on_disk() - before, 16384u);

  ASSERT_TRUE(disk->zero({0, base.blocks}));
  const uint64_t then = stored_bytes_on_disk();
  EXPECT_EQ(committed(*disk, base).pages, std::vector<Digest>{image::kZeros});
  EXPECT_EQ(stored_bytes_on_disk(), then);
}

TEST_F(DiskCommitTest, ADiskIsCommittedOverAnImageOfItsSizeOnly) {
  image::Manifest manifest = image::Manifest::empty(image::ImageKind::kDisk, 11).value();
  chunk::Batch batch = store_->begin();
  EXPECT_EQ(commit_disk(*disk_over(nullptr, 10), manifest, batch).error().kind(), ErrorKind::kInvalid);
  image::Manifest memory = image::Manifest::empty(image::ImageKind::kMemory, 10).value();
  EXPECT_EQ(commit_disk(*disk_over(nullptr, 10), memory, batch).error().kind(), ErrorKind::kInvalid);
}

// ---- The promises of docs/specification.md, at their size.

constexpr uint64_t kLargeDisk = (128ull << 30) / kBlockBytes;

TEST_F(DiskCommitTest, ALargeDiskIsMadeAtOnceAndSmall) {
  const Deadline second = deadline_after(std::chrono::seconds(1));
  Catalogue catalogue = Catalogue::open(directory_.path + "/images").value();
  const std::unique_ptr<OverlayStack> disk = disk_over(nullptr, kLargeDisk);
  ASSERT_TRUE(catalogue.add("large", image::Manifest::empty(image::ImageKind::kDisk, kLargeDisk)->root()));
  EXPECT_LT(MonotonicClock::now(), second);
  EXPECT_LE(bytes_below(directory_.path + "/images") + allocated_below(overlays_path()), 65536u);
}

// 20 blocks of noise in as many chunks and nearly as many pages of the manifest. Then the old bytes again: zeros.
TEST_F(DiskCommitTest, ScatteredWritesCostThemselvesAndTheirPages) {
  const std::unique_ptr<OverlayStack> disk = disk_over(nullptr, kLargeDisk);
  const image::ManifestRoot base = image::Manifest::empty(image::ImageKind::kDisk, kLargeDisk)->root();
  const uint64_t empty = stored_bytes_on_disk();
  const auto place = [](uint64_t i) { return i * 1'677'721 + 5; };
  for (uint64_t i = 0; i < 20; i++) write(*disk, place(i), noise(kBlockBytes, i + 1));
  const image::ManifestRoot after = committed(*disk, base);
  EXPECT_EQ(report_.changed_chunks, 20u);
  uint64_t pages = 0;
  for (size_t i = 0; i < after.pages.size(); i++) pages += after.pages[i] != base.pages[i];
  const uint64_t stored = stored_bytes_on_disk();
  std::printf("%llu bytes stored for 20 blocks and %llu pages\n", static_cast<unsigned long long>(stored - empty),
              static_cast<unsigned long long>(pages));
  EXPECT_LE(stored - empty, 20 * kBlockBytes * 11 / 10 + pages * 16384);
  EXPECT_LE(stored - empty, 320u << 20);
  for (uint64_t i = 0; i < 20; i++) expect_same(*disk, after, {place(i) - 1, 3});

  for (uint64_t i = 0; i < 20; i += 2) write(*disk, place(i), chunk::testing::Bytes(kBlockBytes));
  for (uint64_t i = 1; i < 20; i += 2) ASSERT_TRUE(disk->zero({place(i), 1}));
  EXPECT_EQ(committed(*disk, after), base);
  EXPECT_EQ(stored_bytes_on_disk(), stored);
}

// Each with an overlay and an image of its own; one in ten has written a block and was committed. The figures do not depend on
// the number, syncing their files takes long.
TEST_F(DiskCommitTest, AThousandDisksShareTheirBase) {
  const uint64_t kDisks = std::getenv("RAMET_SOAK") ? 1000 : 40, kOneIn = 10;
  const UniqueFd file = base_file(4ull << 30);
  for (uint64_t chunk = 0; chunk < 256; chunk++)
    ASSERT_TRUE(pwrite_all(file.get(), noise(512 << 10, chunk), chunk * image::kChunkBytes));
  Catalogue catalogue = Catalogue::open(directory_.path + "/images").value();
  const image::ManifestRoot base = imported(file);
  const uint64_t stored = stored_bytes_on_disk();
  EXPECT_LE(stored, (128ull << 20) * 101 / 100);  // noise does not compress
  for (uint64_t i = 0; i < kDisks; i++) {
    const std::unique_ptr<OverlayStack> disk = disk_over(source_of(file), base.blocks);
    image::ManifestRoot root = base;
    if (i % kOneIn == 0) {
      write(*disk, i * 997, noise(kBlockBytes, 10000 + i));
      root = committed(*disk, base);
    }
    ASSERT_TRUE(catalogue.add("disk" + std::to_string(i), root));
  }
  const uint64_t data = kDisks / kOneIn * kBlockBytes;
  const uint64_t files = allocated_below(directory_.path + "/images") + allocated_below(overlays_path()) - data;
  const uint64_t more = stored_bytes_on_disk() - stored - data;
  std::printf("%llu disks: per disk %llu bytes of files; per commit %llu in the store beside the block written\n",
              static_cast<unsigned long long>(kDisks), static_cast<unsigned long long>(files / kDisks),
              static_cast<unsigned long long>(more / (kDisks / kOneIn)));
  EXPECT_LE(files / kDisks + more / (kDisks / kOneIn), 16384u);
}

}  // namespace
}  // namespace ramet::commit
