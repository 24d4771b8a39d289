// One suite over everything that is a BlockSource or BlockTarget.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/file.h"
#include "image/chunked_source.h"
#include "image/raw_source.h"
#include "image/testing/chunk_daemon.h"
#include "image/testing/memory_target.h"
#include "image/testing/patterns.h"

namespace ramet::image {
namespace {

using testing::MemoryTarget;
using testing::read_version;
using testing::write_version;

constexpr uint64_t kBlocks = kChunkBlocks + 7;

UniqueFd temporary_file() {
  char path[] = "/tmp/ramet-image-XXXXXX";
  UniqueFd fd(::mkostemp(path, O_CLOEXEC));
  ::unlink(path);
  return fd;
}

std::unique_ptr<File> posix_file() {
  UniqueFd writer = temporary_file();
  UniqueFd reader = reopen(writer.get(), O_RDONLY).value();
  return std::make_unique<PosixFile>(std::move(reader), std::move(writer));
}

struct Kind {
  const char* name;
  std::unique_ptr<BlockTarget> (*make)();
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

std::unique_ptr<BlockTarget> make_memory() { return std::make_unique<MemoryTarget>(kBlocks); }
std::unique_ptr<BlockTarget> make_stack() {
  return OverlayStack::open(nullptr, kBlocks, {}, OverlayFiles{"a", posix_file(), posix_file()}, HostHistory::kSameBoot)
      .value();
}
std::unique_ptr<BlockTarget> make_stack_over_raw() {
  std::unique_ptr<File> zeros = posix_file();  // shorter than the disk: the rest reads as zero
  (void)zeros->resize(kBlocks * kBlockBytes / 2);
  return OverlayStack::open(std::make_unique<RawSource>(std::move(zeros), kBlocks), kBlocks, {},
                            OverlayFiles{"a", posix_file(), posix_file()}, HostHistory::kSameBoot)
      .value();
}

// Ends after the source that asks it.
class OverADaemon final : public BlockTarget {
 public:
  explicit OverADaemon(bool descriptors) {
    daemon_.give_descriptors(descriptors);
    stack_ = OverlayStack::open(std::make_unique<ChunkedSource>(kBlocks, daemon_.connect()), kBlocks, {},
                                OverlayFiles{"a", posix_file(), posix_file()}, HostHistory::kSameBoot)
                 .value();
  }
  uint64_t size_blocks() const override { return stack_->size_blocks(); }
  Result<bool> read(BlockRange range, std::span<const iovec> to, Wait wait) const override {
    return stack_->read(range, to, wait);
  }
  Content content_at(BlockRange range) const override { return stack_->content_at(range); }
  Status write(BlockRange range, std::span<const iovec> from) override { return stack_->write(range, from); }
  Status zero(BlockRange range) override { return stack_->zero(range); }
  Status flush() override { return stack_->flush(); }

 private:
  testing::ChunkDaemon daemon_{make_memfd("zeros", 0).value(), kBlocks};
  std::unique_ptr<OverlayStack> stack_;
};
std::unique_ptr<BlockTarget> make_stack_over_chunks() { return std::make_unique<OverADaemon>(true); }
std::unique_ptr<BlockTarget> make_stack_over_frames() { return std::make_unique<OverADaemon>(false); }

class Target : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<BlockTarget> target = GetParam().make();
};

TEST_P(Target, ReadsZerosAtFirst) {
  EXPECT_EQ(target->size_blocks(), kBlocks);
  for (const uint64_t block : {uint64_t{0}, kChunkBlocks, kBlocks - 1}) EXPECT_EQ(read_version(*target, block), 0u);
}

TEST_P(Target, ReadsWhatWasWrittenAlsoAcrossChunksAndAfterAFlush) {
  ASSERT_TRUE(write_version(*target, {kChunkBlocks - 2, 4}, 3));
  EXPECT_EQ(read_version(*target, kChunkBlocks + 1), 3u);
  ASSERT_TRUE(target->flush());
  EXPECT_EQ(read_version(*target, kChunkBlocks - 2), 3u);
  EXPECT_EQ(read_version(*target, kChunkBlocks + 2), 0u);
}

TEST_P(Target, ZeroedBlocksReadAsZero) {
  ASSERT_TRUE(write_version(*target, {0, 5}, 3));
  ASSERT_TRUE(target->zero({1, 2}));
  ASSERT_TRUE(target->flush());
  const std::vector<uint64_t> expected{3, 0, 0, 3, 3, 0};
  for (uint64_t i = 0; i < expected.size(); i++) EXPECT_EQ(read_version(*target, i), expected[i]);
}

TEST_P(Target, RangesOffTheDiskAreInvalid) {
  EXPECT_EQ(write_version(*target, {kBlocks, 1}, 1).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(target->zero({kBlocks - 1, 2}).error().kind(), ErrorKind::kInvalid);
  EXPECT_EQ(target->read({~0ull, 2}, {}, Wait::kAllowed).error().kind(), ErrorKind::kInvalid);
}

TEST_P(Target, AgreesWithAPlainArray) {
  std::mt19937_64 rng(7);
  std::vector<uint64_t> model(kBlocks, 0);
  for (uint64_t i = 1; i < 1500; i++) {
    BlockRange range{rng() % 300 + kChunkBlocks - 293, 0};
    range.count = 1 + rng() % std::min<uint64_t>(16, kBlocks - range.first);
    const uint64_t version = rng() % 4 == 0 ? 0 : i;
    ASSERT_TRUE(version == 0 ? target->zero(range) : write_version(*target, range, version));
    std::fill_n(model.begin() + static_cast<ptrdiff_t>(range.first), range.count, version);
    if (i % 97 == 0) {
      ASSERT_TRUE(target->flush());
    }
  }
  for (uint64_t b = 0; b < kBlocks; b++) ASSERT_EQ(read_version(*target, b), model[b]) << b;
}

TEST_P(Target, WhatIsKnownToBeZeroIsZero) {
  ASSERT_TRUE(write_version(*target, {kChunkBlocks - 2, 4}, 3));
  ASSERT_TRUE(target->zero({kChunkBlocks - 1, 1}));
  for (BlockRange left{0, kBlocks}; left.count > 0;) {
    const BlockSource::Content content = target->content_at(left);
    ASSERT_EQ(content.range.first, left.first);
    ASSERT_TRUE(content.range.count > 0 && content.range.count <= left.count);
    for (uint64_t b = left.first; content.zero && b < content.range.end(); b++) ASSERT_EQ(read_version(*target, b), 0u) << b;
    left = {content.range.end(), left.count - content.range.count};
  }
}

TEST_P(Target, ManyThreadsOnBlocksOfTheirOwn) {
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; t++)
    threads.emplace_back([this, t] {
      for (uint64_t i = 1; i <= 200; i++) {
        const uint64_t block = (i % 50) * 4 + t;
        EXPECT_TRUE(write_version(*target, {block, 1}, i * 10 + t));
        EXPECT_EQ(read_version(*target, block), i * 10 + t);
        if (i % 3 == 0) {
          EXPECT_TRUE(target->zero({block, 1}));
          EXPECT_EQ(read_version(*target, block), 0u);
        }
        if (i % 20 == t) {
          EXPECT_TRUE(target->flush());
        }
      }
    });
  for (std::thread& t : threads) t.join();
}

INSTANTIATE_TEST_SUITE_P(All, Target,
                         ::testing::Values(Kind{"memory", make_memory}, Kind{"stack", make_stack},
                                           Kind{"stack_over_raw", make_stack_over_raw},
                                           Kind{"stack_over_chunks", make_stack_over_chunks},
                                           Kind{"stack_over_frames", make_stack_over_frames}),
                         [](const auto& test) { return test.param.name; });

TEST(RawSource, ReadsTheFileAndZerosBehindIt) {
  std::unique_ptr<File> file = posix_file();
  const std::vector<uint64_t> words = testing::pattern(4, 2);
  ASSERT_TRUE(write_all(*file, 0, std::as_bytes(std::span(words)).first(kBlockBytes + 100)));
  const RawSource source(std::move(file), 10);
  EXPECT_EQ(read_version(source, 0), 4u);
  EXPECT_EQ(read_version(source, 2), 0u);
  EXPECT_FALSE(read_version(source, 1));  // half data, half zeros
  EXPECT_EQ(source.read({9, 2}, {}, Wait::kAllowed).error().kind(), ErrorKind::kInvalid);
}

TEST(RawSource, KnowsTheHolesOfItsFile) {
  std::unique_ptr<File> file = posix_file();
  const std::vector<uint64_t> words = testing::pattern(4, 2);
  ASSERT_TRUE(write_all(*file, 4 * kBlockBytes, std::as_bytes(std::span(words))));
  ASSERT_TRUE(file->resize(8 * kBlockBytes + 100));
  const RawSource source(std::move(file), 20);
  EXPECT_EQ(source.content_at({0, 20}).range, (BlockRange{0, 4}));
  EXPECT_TRUE(source.content_at({0, 20}).zero);
  EXPECT_EQ(source.content_at({1, 2}).range, (BlockRange{1, 2}));
  EXPECT_EQ(source.content_at({4, 16}).range, (BlockRange{4, 2}));
  EXPECT_FALSE(source.content_at({4, 16}).zero);
  EXPECT_EQ(source.content_at({6, 14}).range, (BlockRange{6, 14}));
  EXPECT_TRUE(source.content_at({6, 14}).zero);
}

}  // namespace
}  // namespace ramet::image
