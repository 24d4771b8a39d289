// How chunks are put together: few reads, and an error that says which frame.
#include "chunk/assembly.h"

#include <gtest/gtest.h>

#include "chunk/store.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/memory_storage.h"
#include "chunk/testing/temporary_directory.h"

namespace ramet::chunk {
namespace {

using testing::blocks;
using testing::Bytes;
using testing::MemoryStorage;
using testing::TemporaryDirectory;

class AssemblyTest : public ::testing::Test {
 protected:
  AssemblyTest() {
    auto packs = std::make_unique<MemoryStorage>();
    packs_ = packs.get();
    store_ = Store::open(std::move(packs), directory_.path + "/index.db", {}).value();
  }
  Digest put(const Bytes& chunk) {
    Batch batch = store_->begin();
    const Digest digest = batch.put(chunk).value().value();
    EXPECT_TRUE(batch.commit());
    return digest;
  }
  size_t reads_to_get(const Digest& digest, const Bytes& expected) {
    const size_t before = packs_->reads;
    EXPECT_EQ(store_->get(digest).value(), expected);
    return packs_->reads - before;
  }

  TemporaryDirectory directory_;
  MemoryStorage* packs_;  // the store's
  std::unique_ptr<Store> store_;
};

TEST_F(AssemblyTest, FramesSideBySideAreReadAtOnce) {
  const Bytes chunk = blocks(1, 4 * kFrameBlocks);
  EXPECT_EQ(reads_to_get(put(chunk), chunk), 1u);
}

TEST_F(AssemblyTest, ReadsAreNotLargerThanAMebibyte) {
  const Bytes chunk = blocks(1, 16 * kFrameBlocks);  // noise: as long in the pack
  EXPECT_EQ(reads_to_get(put(chunk), chunk), 2u);
}

TEST_F(AssemblyTest, FramesApartAreReadOnceEach) {
  put(blocks(1, 3 * kFrameBlocks));
  Bytes chunk = blocks(1, 10);  // of the first frame
  for (const Bytes& more : {blocks(2 * kFrameBlocks + 1, 10), blocks(11, 10), blocks(2 * kFrameBlocks + 20, 5)})
    chunk.insert(chunk.end(), more.begin(), more.end());
  EXPECT_EQ(reads_to_get(put(chunk), chunk), 2u);
}

TEST_F(AssemblyTest, TheBadFrameOfAChunkIsNamed) {
  const Digest digest = put(blocks(1, 2 * kFrameBlocks));
  packs_->packs.begin()->second[kPackHeaderBytes + kMaxFrameBytes + 5] ^= std::byte{1};  // in the second, which is stored plain
  const auto got = store_->get(digest);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().kind(), ErrorKind::kCorrupt);
  EXPECT_NE(got.error().to_string().find("frame 2"), std::string::npos) << got.error().to_string();
}

}  // namespace
}  // namespace ramet::chunk
