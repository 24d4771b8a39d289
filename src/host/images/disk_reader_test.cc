// Blocks of images: the right bytes by whatever way, what was fetched for them, and what damage does.
#include "host/images/disk_reader.h"

#include <filesystem>
#include <fstream>

#include "chunk/directory_storage.h"
#include "host/images/testing/image_fixture.h"

namespace ramet::host {
namespace {

using image::kBlockBytes;
using image::kChunkBlocks;
using testing::Bytes;

// Packs that can be had anew: `mend` says how.
class MendingStorage final : public chunk::PackStorage {
 public:
  MendingStorage(std::unique_ptr<PackStorage> packs, std::function<void()> mend) : packs_(std::move(packs)), mend_(mend) {}
  Status write(const chunk::PackId& id, std::span<const std::byte> bytes) override { return packs_->write(id, bytes); }
  Status read(const chunk::PackId& id, uint64_t offset, std::span<std::byte> out) const override {
    return packs_->read(id, offset, out);
  }
  Result<uint64_t> size_bytes(const chunk::PackId& id) const override { return packs_->size_bytes(id); }
  Status remove(const chunk::PackId& id) override { return packs_->remove(id); }
  Result<std::vector<chunk::PackId>> list() const override { return packs_->list(); }
  Status refetch(const chunk::PackId&) override {
    mend_();
    return {};
  }

 private:
  const std::unique_ptr<PackStorage> packs_;
  const std::function<void()> mend_;
};

class DiskReaderTest : public testing::ImageFixture {
 protected:
  void start(FillPolicy fill) { reader_ = std::make_unique<DiskReader>(*images_, DiskReader::Options{.fill = fill}); }
  DiskAnswer read(OpenImage& image, uint64_t block, MayLend may_lend = MayLend::kChunks) {
    Result<DiskAnswer> answer = reader_->read(image, {block, 1}, may_lend);
    EXPECT_TRUE(answer) << (answer ? "" : answer.error().to_string());
    return answer ? *std::move(answer) : DiskAnswer(ZeroBlocks{});
  }
  std::optional<ErrorKind> error_of(OpenImage& image, image::BlockRange wanted) {
    const Result<DiskAnswer> answer = reader_->read(image, wanted, MayLend::kChunks);
    return answer ? std::nullopt : std::optional(answer.error().kind());
  }
  static Bytes bytes_in(const DiskAnswer& answer, uint64_t block) {
    if (std::holds_alternative<ZeroBlocks>(answer)) return Bytes(kBlockBytes);
    Bytes out(kBlockBytes);
    if (const WholeChunk* whole = std::get_if<WholeChunk>(&answer)) {
      EXPECT_TRUE(pread_exact(whole->lease.fd(), out, block % kChunkBlocks * kBlockBytes));
      return out;
    }
    const DataBlocks& data = std::get<DataBlocks>(answer);
    EXPECT_GE(block, data.range.first);
    EXPECT_LT(block, data.range.end());
    const std::span<const std::byte> found = data.bytes.subspan((block - data.range.first) * kBlockBytes, kBlockBytes);
    return {found.begin(), found.end()};
  }
  // Flips a byte of the second block stored in each pack.
  void damage_packs() {
    for (const auto& file : std::filesystem::directory_iterator(directory_.path + "/store/packs")) {
      if (file.path().extension() != ".pack") continue;
      const UniqueFd fd = open_file(file.path(), O_RDWR).value();
      std::byte b[1];
      ASSERT_TRUE(pread_exact(fd.get(), b, 5000));
      b[0] ^= std::byte{1};
      ASSERT_TRUE(pwrite_all(fd.get(), b, 5000));
    }
  }
  void mend_by(std::function<void()> mend) {
    behind_ = [mend](std::unique_ptr<chunk::PackStorage> packs) {
      return std::make_unique<MendingStorage>(std::move(packs), mend);
    };
    reopen();
  }
  void TearDown() override { reader_.reset(); }

  std::unique_ptr<DiskReader> reader_;
};

TEST_F(DiskReaderTest, EveryBlockIsItsOwnByFramesAndByTheCache) {
  const std::vector<uint64_t> written = {0, 1, 2, 40, 4095, 4096, 8191, 12000};
  const UniqueFd raw = raw_file(12288 + 100, written);
  const std::shared_ptr<OpenImage> image = imported("disk", raw);
  start({.after_misses = 1});
  for (int round = 0; round < 2; round++) {
    for (const uint64_t block : written) EXPECT_EQ(bytes_in(read(*image, block), block), block_bytes(block)) << block;
    for (const uint64_t block : {3u, 39u, 41u, 8190u, 12001u, 12387u})
      EXPECT_EQ(bytes_in(read(*image, block), block), Bytes(kBlockBytes)) << block;
    reader_->drain();
  }
  EXPECT_TRUE(std::holds_alternative<WholeChunk>(read(*image, 0)));
}

TEST_F(DiskReaderTest, NeighboursComeFromOneFrameThatIsFetchedOnce) {
  std::vector<uint64_t> written;
  for (uint64_t block = 0; block < 32; block++) written.push_back(block);
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, written));
  start({.after_misses = 0});
  for (const uint64_t block : written) EXPECT_EQ(bytes_in(read(*image, block), block), block_bytes(block));
  EXPECT_EQ(images_->counters().frames, 1u);
  EXPECT_EQ(images_->counters().asks, 32u);
  EXPECT_GT(images_->counters().fetched_bytes, 32 * kBlockBytes / 2);
  EXPECT_LE(images_->counters().fetched_bytes, 32 * kBlockBytes + 4096);
}

TEST_F(DiskReaderTest, DataIsWhatWasAskedForAsFarAsItsFrameGoes) {
  std::vector<uint64_t> written;
  for (uint64_t block = 0; block < 50; block++) written.push_back(block);
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, written));
  start({.after_misses = 0});
  const auto range = [&](uint64_t first, uint64_t count) {
    const DiskAnswer answer = *reader_->read(*image, {first, count}, MayLend::kNothing);
    const DataBlocks& data = std::get<DataBlocks>(answer);
    for (uint64_t block = data.range.first; block < data.range.end(); block++)
      EXPECT_EQ(bytes_in(answer, block), block_bytes(block)) << block;
    return data.range;
  };
  EXPECT_EQ(range(5, 1), (image::BlockRange{5, 1}));
  EXPECT_EQ(range(5, 10), (image::BlockRange{5, 10}));
  EXPECT_EQ(range(30, 4096), (image::BlockRange{30, 2}));
  EXPECT_EQ(range(32, 4096), (image::BlockRange{32, 18}));
}

TEST_F(DiskReaderTest, ZerosAreOneRangeAcrossChunks) {
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(10 * kChunkBlocks + 7, {5, 9 * kChunkBlocks}));
  start({.after_misses = 0});
  EXPECT_EQ(std::get<ZeroBlocks>(read(*image, 100)).range, (image::BlockRange{6, 9 * kChunkBlocks - 6}));
  EXPECT_EQ(std::get<ZeroBlocks>(read(*image, 10 * kChunkBlocks + 6)).range.end(), image->blocks());
  EXPECT_EQ(images_->counters().fetched_bytes, 0u);
}

TEST_F(DiskReaderTest, WithoutPrefetchNothingIsFilled) {
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {1, 2, 3}));
  start({.after_misses = 0});
  for (int i = 0; i < 10; i++) (void)read(*image, 1);
  reader_->drain();
  EXPECT_EQ(images_->cache().usage().chunks, 0u);
  EXPECT_EQ(images_->counters().filled_bytes, 0u);
}

TEST_F(DiskReaderTest, AChunkThatIsComeBackToIsFilledAndLent) {
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {1, 2, 3}));
  start({.after_misses = 2});
  (void)read(*image, 1);
  reader_->drain();
  EXPECT_EQ(images_->cache().usage().chunks, 0u);
  (void)read(*image, 1);
  reader_->drain();
  EXPECT_EQ(bytes_in(read(*image, 1), 1), block_bytes(1));
  EXPECT_TRUE(std::holds_alternative<WholeChunk>(read(*image, 2)));
  EXPECT_TRUE(std::holds_alternative<DataBlocks>(read(*image, 2, MayLend::kNothing)));
}

TEST_F(DiskReaderTest, ABlockPastTheEndIsAnErrorOfTheAsker) {
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {1}));
  start({});
  EXPECT_EQ(error_of(*image, {100, 1}), ErrorKind::kInvalid);
}

TEST_F(DiskReaderTest, DamageIsAnErrorAndNeverOtherBytes) {
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {1, 2, 3}));
  damage_packs();
  start({.after_misses = 1});
  EXPECT_EQ(error_of(*image, {2, 1}), ErrorKind::kIo);
  EXPECT_EQ(error_of(*image, {1, 3}), ErrorKind::kIo);
  reader_->drain();
  EXPECT_EQ(images_->cache().usage().chunks, 0u);
}

TEST_F(DiskReaderTest, DamageIsFetchedAnewOnce) {
  int refetched = 0;
  mend_by([&] {
    refetched++;
    damage_packs();  // the same flip again mends it
  });
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {1, 2, 3}));
  damage_packs();
  start({.after_misses = 0});
  EXPECT_EQ(bytes_in(read(*image, 2), 2), block_bytes(2));
  EXPECT_EQ(refetched, 1);
}

// Who asks for one block gets it from a frame of which another one is damaged: that one is found when it is asked for.
TEST_F(DiskReaderTest, DamageNextToWhatWasAskedForIsFoundInTheKeptFrame) {
  int refetched = 0;
  mend_by([&] {
    refetched++;
    damage_packs();
  });
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {1, 2, 3}));
  damage_packs();
  start({.after_misses = 0});
  EXPECT_EQ(bytes_in(read(*image, 1), 1), block_bytes(1));
  EXPECT_EQ(refetched, 0);
  EXPECT_EQ(bytes_in(read(*image, 2), 2), block_bytes(2));
  EXPECT_EQ(refetched, 1);
  EXPECT_EQ(bytes_in(read(*image, 3), 3), block_bytes(3));
  EXPECT_EQ(images_->counters().frames, 2u);
}

TEST_F(DiskReaderTest, DamageThatStaysIsAnErrorOfItsBlockAlone) {
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {1, 2, 3}));
  damage_packs();
  start({.after_misses = 0});
  EXPECT_EQ(bytes_in(read(*image, 1), 1), block_bytes(1));
  EXPECT_EQ(error_of(*image, {2, 1}), ErrorKind::kIo);
  EXPECT_EQ(bytes_in(read(*image, 3), 3), block_bytes(3));
  EXPECT_EQ(error_of(*image, {2, 1}), ErrorKind::kIo);
}

TEST_F(DiskReaderTest, WhatAnotherFetchDoesNotMendIsAnError) {
  int refetched = 0;
  mend_by([&] { refetched++; });
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {1, 2, 3}));
  damage_packs();
  start({.after_misses = 0});
  EXPECT_EQ(error_of(*image, {2, 1}), ErrorKind::kIo);
  EXPECT_EQ(refetched, 1);
}

TEST_F(DiskReaderTest, ReadsGoOnWhileACollectionMovesTheirFrames) {
  std::vector<uint64_t> blocks;
  for (uint64_t block = 0; block < 2000; block++) blocks.push_back(block);
  imported("dead", raw_file(4000, blocks, 2));
  const std::shared_ptr<OpenImage> image = imported("disk", raw_file(100, {1, 2, 3}));
  start({.after_misses = 0});
  ASSERT_TRUE(images_->remove({ImageSpace::kUser, "dead"}));
  ASSERT_TRUE(images_->collect());
  EXPECT_EQ(bytes_in(read(*image, 2), 2), block_bytes(2));
}

}  // namespace
}  // namespace ramet::host
