#include "image/memory_layout.h"

#include <gtest/gtest.h>

namespace ramet::image {
namespace {

constexpr uint64_t kMiB = 1ull << 20;
constexpr uint64_t kGiB = 1ull << 30;

TEST(ZeroMap, DataOnlyIsOnePiecePerSegmentFromAlternatingFiles) {
  const std::vector<RamPiece> pieces = ZeroMap(64 * kMiB).pieces();
  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(pieces[0].file, 0u);
  EXPECT_EQ(pieces[1].file, 1u);
  EXPECT_EQ(pieces[2].file, 0u);
  EXPECT_EQ(pieces[3].offset, 48 * kMiB);
}

TEST(ZeroMap, LastSegmentMayBeShort) {
  const std::vector<RamPiece> pieces = ZeroMap(18 * kMiB).pieces();
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[1].length, 2 * kMiB);
}

TEST(ZeroMap, ZeroRunSpansSegments) {
  ZeroMap map(48 * kMiB);
  for (uint64_t b = 4; b < 20; b++) map.set_zero(b, true);
  const std::vector<RamPiece> pieces = map.pieces();
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_TRUE(pieces[1].anonymous);
  EXPECT_EQ(pieces[1].offset, 8 * kMiB);
  EXPECT_EQ(pieces[1].length, 32 * kMiB);
  EXPECT_EQ(pieces[2].file, 0u);
}

TEST(ZeroMap, HostileCheckerboardStaysWithinTheLimit) {
  ZeroMap map(8 * kGiB);
  for (uint64_t b = 0; b < map.blocks(); b += 2) map.set_zero(b, true);
  map.limit_mappings();
  EXPECT_LE(map.mapping_count(), map.mapping_limit());
  EXPECT_EQ(map.mapping_limit(), 1024u);
}

TEST(ZeroMap, LongestRunsAreKept) {
  ZeroMap map(16 * kMiB);  // one segment: limit 2
  map.set_zero(1, true);
  for (uint64_t b = 3; b < 8; b++) map.set_zero(b, true);
  map.limit_mappings();
  EXPECT_FALSE(map.zero(1));
  EXPECT_TRUE(map.zero(5));
  EXPECT_EQ(map.mapping_count(), 2u);
}

TEST(ZeroMap, AllZeroIsOnePiece) {
  ZeroMap map(kGiB);
  for (uint64_t b = 0; b < map.blocks(); b++) map.set_zero(b, true);
  map.limit_mappings();
  EXPECT_EQ(map.mapping_count(), 1u);
}

TEST(ZeroMap, EncodesAndDecodes) {
  ZeroMap map(40 * kMiB);
  map.set_zero(9, true);
  const Result<ZeroMap> back = ZeroMap::decode(40 * kMiB, map.encode());
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->zero(9));
  EXPECT_FALSE(back->zero(8));
}

TEST(ZeroMap, RefusesWrongLengthAndTooManyMappings) {
  EXPECT_EQ(ZeroMap::decode(40 * kMiB, "x").error().kind(), ErrorKind::kCorrupt);
  ZeroMap map(32 * kMiB);
  for (uint64_t b = 0; b < map.blocks(); b += 2) map.set_zero(b, true);
  EXPECT_EQ(ZeroMap::decode(32 * kMiB, map.encode()).error().kind(), ErrorKind::kCorrupt);
}

TEST(ZeroMap, LargeRamHasLargeSegments) {
  EXPECT_EQ(segment_bytes(16 * kGiB), 16 * kMiB);
  EXPECT_EQ(segment_bytes(32 * kGiB), 64 * kMiB);
  EXPECT_LE(ZeroMap(64 * kGiB).mapping_count(), kMaxMappings);
}

// ---- Of an image.

Digest some_chunk(uint8_t n) {
  Digest d;
  d.bytes[0] = std::byte{n};
  return d;
}

TEST(ZeroMapOfImage, ABlockIsZeroWhenAllItsChunksAre) {
  Manifest memory = Manifest::empty(ImageKind::kMemory, 48 * kMiB / kBlockBytes).value();
  ASSERT_TRUE(memory.set(7, some_chunk(1)));   // the last of block 1
  ASSERT_TRUE(memory.set(40, some_chunk(2)));  // the first of block 10
  const ZeroMap map = zero_map_of(memory).value();
  ASSERT_EQ(map.blocks(), 24u);
  for (uint64_t block = 0; block < map.blocks(); block++) EXPECT_EQ(map.zero(block), block != 1 && block != 10) << block;
}

TEST(ZeroMapOfImage, AnImageWithTooManyRunsKeepsToTheLimit) {
  Manifest memory = Manifest::empty(ImageKind::kMemory, kGiB / kBlockBytes).value();
  for (uint64_t chunk = 0; chunk < memory.chunks(); chunk += 8) ASSERT_TRUE(memory.set(chunk, some_chunk(1)));
  const ZeroMap map = zero_map_of(memory).value();
  EXPECT_GT(map.mapping_count(), map.mapping_limit() / 2);
  EXPECT_LE(map.mapping_count(), map.mapping_limit());
}

TEST(ZeroMapOfImage, ADiskAndMemoryOfPartsOfBlocksAreRefused) {
  Manifest disk = Manifest::empty(ImageKind::kDisk, 512).value();
  EXPECT_EQ(zero_map_of(disk).error().kind(), ErrorKind::kInvalid);
  Manifest uneven = Manifest::empty(ImageKind::kMemory, 512 + 128).value();
  EXPECT_EQ(zero_map_of(uneven).error().kind(), ErrorKind::kInvalid);
}

TEST(ZeroMapOfImage, APageThatCannotBeLoadedIsAnError) {
  Manifest memory = Manifest::of({ImageKind::kMemory, 512, {some_chunk(1)}}, [](const Digest&) -> Result<std::string> {
    return fail(ErrorKind::kNotFound, "no such page (test)");
  });
  EXPECT_EQ(zero_map_of(memory).error().kind(), ErrorKind::kNotFound);
}

}  // namespace
}  // namespace ramet::image
