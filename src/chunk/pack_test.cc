// A pack in memory and read back: whole, full to the brim, and damaged in every byte.
#include "chunk/pack.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "chunk/testing/contents.h"
#include "chunk/testing/memory_storage.h"

namespace ramet::chunk {
namespace {

using testing::noise;

Recipe one_frame(FrameId frame, uint32_t blocks) {
  Recipe r;
  r.append({.blocks = blocks, .frame = frame, .first = 0});
  return r;
}

class PackTest : public ::testing::Test {
 protected:
  void add(PackBuilder& pack, FrameId id, std::span<const std::byte> plain) {
    pack.add_frame(id, plain, block_digests(plain), encoder_);
  }
  FrameEncoder encoder_;
  FrameDecoder decoder_;
  testing::MemoryStorage storage_;
};

TEST_F(PackTest, IsReadBackAsItWasMade) {
  const std::vector<std::byte> a = noise(kMaxFrameBytes, 1), b(3 * kBlockBytes, std::byte{'x'});
  PackBuilder pack = PackBuilder::create(random_pack_id().value()).value();
  EXPECT_TRUE(pack.empty());
  add(pack, 41, a);
  add(pack, 42, b);
  pack.add_chunk(digest_of(a), one_frame(41, 32));
  const PackTail made = pack.tail();
  ASSERT_TRUE(storage_.write(pack.id(), pack.finish()));
  EXPECT_EQ(storage_.size_bytes(pack.id()).value() % kPackAlignment, 0u);

  const PackTail tail = read_pack_tail(storage_, pack.id()).value();
  EXPECT_EQ(tail, made);
  std::vector<std::byte> out(b.size());
  ASSERT_TRUE(read_frame(storage_, pack.id(), tail.frames[1], decoder_, out));
  EXPECT_EQ(out, b);
  out.resize(a.size());
  ASSERT_TRUE(read_frame(storage_, pack.id(), tail.frames[0], decoder_, out));
  EXPECT_EQ(out, a);
}

TEST_F(PackTest, OneBlockCostsLittleMoreThanItself) {
  const std::vector<std::byte> block = noise(kBlockBytes, 1);
  PackBuilder pack = PackBuilder::create(random_pack_id().value()).value();
  add(pack, 1, block);
  pack.add_chunk(digest_of(block), one_frame(1, 1));
  EXPECT_EQ(pack.finish().size(), 2 * kPackAlignment);
}

TEST_F(PackTest, RestartedIsLikeAFreshOne) {
  const PackId id = random_pack_id().value();
  PackBuilder fresh = PackBuilder::create(id).value(), used = PackBuilder::create(random_pack_id().value()).value();
  for (FrameId frame = 1; frame < 9; frame++) add(used, frame, noise(kMaxFrameBytes, frame));
  used.finish();
  used.restart(id);
  EXPECT_TRUE(used.empty());
  for (PackBuilder* pack : {&fresh, &used}) add(*pack, 9, noise(kBlockBytes, 9));
  EXPECT_TRUE(std::ranges::equal(fresh.finish(), used.finish()));
}

// Nothing compresses, so the estimate is as bad as can be.
TEST_F(PackTest, FillsToItsLimitAndNotBeyond) {
  const std::vector<std::byte> plain = noise(kMaxFrameBytes, 2);
  const std::vector<Digest> digests = block_digests(plain);
  PackBuilder pack = PackBuilder::create(random_pack_id().value()).value();
  FrameId id = kCommonFrame - 10000;
  for (; pack.has_room_for(kFrameBlocks, 40); id++) {
    pack.add_frame(id, plain, digests, encoder_);
    pack.add_chunk(digest_of(plain), one_frame(id, 32));
  }
  const std::span<const std::byte> bytes = pack.finish();
  EXPECT_LE(bytes.size(), kMaxPackBytes);
  EXPECT_GT(bytes.size(), kMaxPackBytes - 2 * kMaxFrameBytes);
  ASSERT_TRUE(storage_.write(pack.id(), bytes));
  EXPECT_EQ(read_pack_tail(storage_, pack.id()).value().frames.back().id, id - 1);
}

TEST_F(PackTest, EveryFlippedByteIsToldOrHarmless) {
  const std::vector<std::byte> plain = noise(2 * kBlockBytes, 3);
  PackBuilder pack = PackBuilder::create(random_pack_id().value()).value();
  add(pack, 9, plain);
  pack.add_chunk(digest_of(plain), one_frame(9, 2));
  ASSERT_TRUE(storage_.write(pack.id(), pack.finish()));
  const PackTail good = read_pack_tail(storage_, pack.id()).value();
  std::vector<std::byte>& bytes = storage_.packs[pack.id()];
  for (size_t i = 0; i < bytes.size(); i++) {
    bytes[i] ^= std::byte{4};
    std::vector<std::byte> out(plain.size());
    const Result<PackTail> tail = read_pack_tail(storage_, pack.id());
    if (tail) {
      ASSERT_EQ(*tail, good) << i;
      const bool read = read_frame(storage_, pack.id(), tail->frames[0], decoder_, out).has_value();
      ASSERT_TRUE(!read || out == plain) << i;
    }
    bytes[i] ^= std::byte{4};
  }
  for (size_t length = 0; length < bytes.size(); length += 61) {
    const std::vector<std::byte> whole = bytes;
    bytes.resize(length);
    EXPECT_FALSE(read_pack_tail(storage_, pack.id())) << length;
    bytes = whole;
  }
}

TEST_F(PackTest, AnotherPackUnderItsNameIsTold) {
  PackBuilder pack = PackBuilder::create(random_pack_id().value()).value();
  add(pack, 9, noise(kBlockBytes, 3));
  const PackId other = random_pack_id().value();
  ASSERT_NE(other, pack.id());
  ASSERT_TRUE(storage_.write(other, pack.finish()));
  EXPECT_EQ(read_pack_tail(storage_, other).error().kind(), ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace ramet::chunk
