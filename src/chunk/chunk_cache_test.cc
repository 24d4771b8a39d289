// The chunk cache: never a wrong byte, never more than it may hold, whatever is killed, damaged or full.
#include "chunk/chunk_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/file.h"
#include "base/testing/small_disk.h"
#include "chunk/digest.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::chunk {
namespace {

using testing::blocks;
using testing::Bytes;
using testing::TemporaryDirectory;
using Lease = ChunkCache::Lease;

constexpr uint64_t kChunkBytes = 8 * kBlockBytes;

Bytes chunk_number(uint64_t n) { return blocks(n * 100, kChunkBytes / kBlockBytes); }
Digest name_of(uint64_t n) { return digest_of(chunk_number(n)); }

Bytes contents(const Lease& lease) {
  Bytes out(file_size(lease.fd()).value());
  EXPECT_TRUE(pread_exact(lease.fd(), out, 0));
  return out;
}

class ChunkCacheTest : public ::testing::Test {
 protected:
  void open(uint64_t max_chunks = 100, Trust trust = Trust::kSameBoot) {
    cache_.reset();
    Result<std::unique_ptr<ChunkCache>> opened = ChunkCache::open(path(), {max_chunks * kChunkBytes, trust});
    ASSERT_TRUE(opened) << opened.error().to_string();
    cache_ = *std::move(opened);
  }
  Lease fill(uint64_t n) { return cache_->fill(name_of(n), chunk_number(n)).value(); }
  bool has(uint64_t n) { return cache_->find(name_of(n)).has_value(); }
  std::string path() const { return directory_.path + "/cache"; }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path()))
      if (entry.is_regular_file() && entry.path().filename() != "lock") out.push_back(entry.path());
    return out;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<ChunkCache> cache_;
};

TEST_F(ChunkCacheTest, GivesBackWhatWasFilled) {
  open();
  EXPECT_FALSE(has(1));
  EXPECT_EQ(contents(fill(1)), chunk_number(1));
  EXPECT_EQ(contents(*cache_->find(name_of(1))), chunk_number(1));
  open();
  EXPECT_EQ(contents(*cache_->find(name_of(1))), chunk_number(1));
  EXPECT_EQ(cache_->usage().bytes, kChunkBytes);
}

TEST_F(ChunkCacheTest, ADescriptorCannotWriteAndIsNobodyElses) {
  open();
  const Lease a = fill(1), b = fill(1);
  EXPECT_EQ(::fcntl(a.fd(), F_GETFL) & O_ACCMODE, O_RDONLY);
  struct stat st;
  ASSERT_EQ(::fstat(a.fd(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0400u);
  ASSERT_EQ(::lseek(a.fd(), 100, SEEK_SET), 100);
  EXPECT_EQ(::lseek(b.fd(), 0, SEEK_CUR), 0);
}

TEST_F(ChunkCacheTest, ZerosTakeNoSpace) {
  open();
  Bytes chunk(kMaxChunkBlocks * kBlockBytes);
  testing::set_block(chunk, 1000, 1);
  testing::set_block(chunk, 4095, 2);
  EXPECT_EQ(contents(cache_->fill(digest_of(chunk), chunk).value()), chunk);
  EXPECT_LE(cache_->usage().bytes, 4 * kBlockBytes);
}

TEST_F(ChunkCacheTest, SizesOutsideTheLimitsAreRefused) {
  open();
  for (const size_t bytes : {size_t{0}, size_t{100}, (kMaxChunkBlocks + 1) * kBlockBytes})
    EXPECT_EQ(cache_->fill({}, Bytes(bytes)).error().kind(), ErrorKind::kInvalid) << bytes;
}

TEST_F(ChunkCacheTest, WhatWasUsedLeastRecentlyGoesFirst) {
  open(3);
  for (const uint64_t n : {1, 2, 3}) fill(n);
  EXPECT_TRUE(has(1));
  fill(4);
  EXPECT_FALSE(has(2));
  EXPECT_TRUE(has(1) && has(3) && has(4));
  EXPECT_EQ(files().size(), 3u);
  open(1);
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(cache_->usage().bytes, kChunkBytes);
}

TEST_F(ChunkCacheTest, WhatIsLeasedStays) {
  open(2);
  const Lease first = fill(1);
  fill(2);
  fill(3);
  EXPECT_TRUE(has(1) && has(3));
  const Lease third = fill(3);
  EXPECT_EQ(cache_->fill(name_of(4), chunk_number(4)).error().kind(), ErrorKind::kNoSpace);
  EXPECT_EQ(contents(first), chunk_number(1));
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(ChunkCacheTest, RemovedButLeasedBytesGoOnCounting) {
  open(2);
  std::optional<Lease> first = fill(1);
  first->close_fd();  // sent to a reader
  const Lease second = fill(2);
  cache_->remove(name_of(1));
  EXPECT_FALSE(has(1));
  EXPECT_EQ(cache_->usage().bytes, 2 * kChunkBytes);
  EXPECT_EQ(cache_->fill(name_of(3), chunk_number(3)).error().kind(), ErrorKind::kNoSpace);
  first.reset();
  EXPECT_EQ(cache_->usage().bytes, kChunkBytes);
  EXPECT_EQ(contents(fill(3)), chunk_number(3));
}

TEST_F(ChunkCacheTest, AfterAnUncleanBootEveryFlippedByteIsFoundAtFirstUse) {
  const Bytes chunk = blocks(1, 1);
  const Digest digest = digest_of(chunk);
  for (size_t i = 0; i < chunk.size(); i++) {
    open();
    static_cast<void>(cache_->fill(digest, chunk).value());
    cache_.reset();
    const std::string file = files().at(0);
    ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
    {
      const UniqueFd fd = open_file(file, O_RDWR).value();
      const std::byte bad = chunk[i] ^ std::byte{0x10};
      ASSERT_TRUE(pwrite_all(fd.get(), std::span(&bad, 1), i));
    }
    open(100, Trust::kVerify);
    ASSERT_FALSE(cache_->find(digest)) << "byte " << i;
    ASSERT_TRUE(files().empty());
    ASSERT_EQ(cache_->usage().bytes, 0u);
    ASSERT_EQ(contents(cache_->fill(digest, chunk).value()), chunk);
  }
}

TEST_F(ChunkCacheTest, AfterAnUncleanBootACutFileIsFound) {
  for (const uint64_t length : {uint64_t{0}, kBlockBytes, kChunkBytes - 1, kChunkBytes + 1, uint64_t{1} << 40}) {
    open();
    fill(1);
    cache_.reset();
    std::filesystem::permissions(files().at(0), std::filesystem::perms(0600));
    std::filesystem::resize_file(files().at(0), length);
    open(100, Trust::kVerify);
    EXPECT_FALSE(has(1)) << length;
    EXPECT_TRUE(files().empty());
  }
}

TEST_F(ChunkCacheTest, FilesOfAnotherBootAreChecked) {
  open();
  fill(1);
  fill(2);
  cache_.reset();
  const std::filesystem::path checked = files().at(0).parent_path();
  std::filesystem::rename(checked, path() + "/checked-another-boot");
  const std::string bad = path() + "/checked-another-boot/" + name_of(1).to_hex();
  std::filesystem::permissions(bad, std::filesystem::perms(0600));
  std::filesystem::resize_file(bad, kBlockBytes);
  open();
  EXPECT_FALSE(has(1));
  EXPECT_EQ(contents(*cache_->find(name_of(2))), chunk_number(2));
  EXPECT_EQ(files(), std::vector{checked / name_of(2).to_hex()});  // and is believed from now on
}

TEST_F(ChunkCacheTest, HasOneOwner) {
  open();
  EXPECT_EQ(ChunkCache::open(path(), {kChunkBytes}).error().kind(), ErrorKind::kConflict);
}

TEST_F(ChunkCacheTest, OpensAgainWithoutWhatAKillLeft) {
  open();
  fill(1);
  cache_.reset();
  ASSERT_TRUE(replace_file(files().at(0).parent_path() / "unfinished-7", "half"));
  open();
  EXPECT_EQ(files().size(), 1u);
  EXPECT_EQ(cache_->usage().bytes, kChunkBytes);
}

TEST_F(ChunkCacheTest, KilledAtAnyMomentItHoldsWholeChunksOnly) {
  size_t found = 0;
  for (int round = 0; round < 20; round++) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      open(10);
      for (uint64_t n = 0;; n = (n + 1) % 30)
        if (!cache_->fill(name_of(n), chunk_number(n))) ::_exit(1);
    }
    ::usleep(static_cast<useconds_t>(3000 + 1777 * round));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    open(10);
    ASSERT_LE(files().size(), 10u);
    for (uint64_t n = 0; n < 30; n++) {
      const std::optional<Lease> lease = cache_->find(name_of(n));
      if (!lease) continue;
      ASSERT_EQ(contents(*lease), chunk_number(n));
      found++;
    }
    cache_.reset();
  }
  EXPECT_GT(found, 20u);
}

TEST_F(ChunkCacheTest, ManyThreadsSeeOnlyRightBytes) {
  open();
  for (uint64_t n = 0; n < 20; n++) fill(n);
  open(10, Trust::kVerify);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; t++)
    threads.emplace_back([this, t] {
      for (uint64_t i = 0; i < 300; i++) {
        const uint64_t n = (i * 7 + t * i) % 20;
        std::optional<Lease> lease = cache_->find(name_of(n));
        if (!lease) lease = fill(n);
        EXPECT_EQ(contents(*lease), chunk_number(n));
        if (i % 16 == t) cache_->remove(name_of(n));
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(cache_->usage().leased_bytes, 0u);
  EXPECT_EQ(cache_->usage().bytes, cache_->usage().chunks * kChunkBytes);
  EXPECT_EQ(files().size(), cache_->usage().chunks);
}

TEST_F(ChunkCacheTest, OnAFullDiskItMakesRoomOrSaysSo) {
  ramet::testing::on_a_small_disk(path(), 3 * kChunkBytes, [this](ramet::testing::SmallDisk&) {
    open();
    for (uint64_t n = 0; n < 10; n++) EXPECT_EQ(contents(fill(n)), chunk_number(n));
    const Lease ninth = fill(9), tenth = fill(10), eleventh = fill(11);
    EXPECT_EQ(cache_->fill(name_of(12), chunk_number(12)).error().kind(), ErrorKind::kNoSpace);
    EXPECT_EQ(files().size(), 3u);
    EXPECT_EQ(contents(tenth), chunk_number(10));
    EXPECT_EQ(cache_->usage().bytes, 3 * kChunkBytes);
  });
}

}  // namespace
}  // namespace ramet::chunk
