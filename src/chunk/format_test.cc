// The bytes of the store: numbers, recipes, frames and packs survive a round trip, and nothing else is accepted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/crc32c.h"
#include "base/file.h"
#include "chunk/pack_format.h"
#include "chunk/side_by_side.h"
#include "chunk/testing/contents.h"
#include "chunk/varint.h"

namespace ramet::chunk {
namespace {

using testing::Bytes;
using testing::noise;

std::vector<std::byte> text(size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i < bytes; i++) out[i] = static_cast<std::byte>("agents need machines "[i % 21]);
  return out;
}

TEST(Digest, IsTheSha256OfThoseOfTheBlocks) {
  std::vector<std::byte> blocks(2 * kBlockBytes);
  std::fill_n(blocks.begin() + kBlockBytes, kBlockBytes, std::byte{'x'});
  EXPECT_EQ(block_digest(std::span(blocks).subspan(kBlockBytes)).to_hex(),
            "a2e659dacb4691e887ac0139f8893d04764ee197d70fb73d3190d56113d18e3e");
  EXPECT_EQ(kZeroBlockDigest.to_hex(), "ad7facb2586fc6e966c004d7d1d16b024f5805ff7cb47c7a85dabd8b48892ca7");
  EXPECT_EQ(digest_of(blocks).to_hex(), "10e4e634999cbfefbcacb14712aa812888927f3d750c8ebc6aa23f16aad3e162");
}

TEST(Digest, OfZerosCutShortIsAnother) {
  const std::vector<std::byte> zeros(2 * kBlockBytes);
  EXPECT_NE(digest_of(std::span(zeros).first(kBlockBytes + 100)), digest_of(zeros));
}

TEST(Digest, OfManyBlocksSideBySideAreTheSame) {
  constexpr size_t kBlocks = 525;  // many, and no round number
  Bytes blocks = testing::blocks(0, kBlocks);
  for (const size_t zero : {size_t{0}, size_t{20}, size_t{21}, kBlocks - 1})
    std::fill_n(blocks.begin() + static_cast<std::ptrdiff_t>(zero * kBlockBytes), kBlockBytes, std::byte{0});
  std::vector<Digest> one_by_one, side_by_side(kBlocks);
  for (size_t i = 0; i < side_by_side.size(); i++)
    one_by_one.push_back(block_digest(std::span(blocks).subspan(i * kBlockBytes, kBlockBytes)));
  ASSERT_TRUE(SideBySide().digests(blocks, side_by_side));
  EXPECT_EQ(side_by_side, one_by_one);
  EXPECT_EQ(block_digests(blocks), one_by_one);
}

TEST(Digest, ReadsItsOwnHex) {
  const Digest d = digest_of(text(kBlockBytes));
  EXPECT_EQ(Digest::from_hex(d.to_hex()), d);
  EXPECT_EQ(Digest::from_hex(""), std::nullopt);
  EXPECT_EQ(Digest::from_hex(std::string(63, 'a') + "G"), std::nullopt);
  EXPECT_EQ(Digest::from_hex(std::string(66, 'a')), std::nullopt);
}

TEST(Varint, HasOneFormForEachNumber) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{127}, uint64_t{128}, uint64_t{1} << 35, ~uint64_t{0}}) {
    std::string bytes;
    append_varint(bytes, value);
    Decoder in(as_bytes(bytes));
    EXPECT_EQ(in.varint(), value);
    EXPECT_TRUE(in.at_end());
    Decoder cut(as_bytes(bytes).first(bytes.size() - 1));
    EXPECT_EQ(cut.varint(), std::nullopt);
  }
  for (const std::string& bad : {std::string("\x80\x00", 2), std::string(10, '\xff'), std::string(11, '\x80')}) {
    Decoder in(as_bytes(bad));
    EXPECT_EQ(in.varint(), std::nullopt);
  }
}

Recipe sample_recipe() {
  Recipe r;
  r.append({.blocks = 3, .frame = std::nullopt, .first = 0});
  r.append({.blocks = 4, .frame = 7000, .first = 2});
  r.append({.blocks = 2, .frame = 7000, .first = 6});  // joins
  r.append({.blocks = 1, .frame = 6990, .first = 31});
  r.append({.blocks = 1, .frame = 7000, .first = 0});
  r.append({.blocks = 4000, .frame = std::nullopt, .first = 0});
  return r;
}

TEST(Recipe, JoinsWhatIsOne) {
  const Recipe r = sample_recipe();
  EXPECT_EQ(r.extents.size(), 5u);
  EXPECT_EQ(r.blocks(), 4011u);
  EXPECT_THAT(r.frames(), ::testing::ElementsAre(7000, 6990));
}

TEST(Recipe, SurvivesARoundTripInFewBytes) {
  const std::string bytes = encode_recipe(sample_recipe());
  EXPECT_EQ(decode_recipe(as_bytes(bytes)), sample_recipe());
  EXPECT_LE(bytes.size(), 20u);
  Recipe far;
  far.append({.blocks = 1, .frame = ~FrameId{0}, .first = 0});
  far.append({.blocks = 1, .frame = 0, .first = 0});
  far.append({.blocks = 1, .frame = FrameId{1} << 63, .first = 0});
  EXPECT_EQ(decode_recipe(as_bytes(encode_recipe(far))), far);
}

TEST(Recipe, RefusesWhatItWouldNotWrite) {
  const auto refused = [](std::initializer_list<uint64_t> numbers, std::string_view end = {}) {
    std::string bytes;
    for (const uint64_t n : numbers) append_varint(bytes, n);
    bytes += end;
    return !decode_recipe(as_bytes(bytes));
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({5000}));                                   // more frames than blocks can be
  EXPECT_TRUE(refused({0, 0}));                                   // an extent without blocks
  EXPECT_TRUE(refused({0, (kMaxChunkBlocks + 1) << 1}));          // longer than a chunk
  EXPECT_TRUE(refused({0, kMaxChunkBlocks << 1, 2}));             // in two parts as well
  EXPECT_TRUE(refused({0, 2, 2}));                                // zeros in two parts
  EXPECT_TRUE(refused({1, 2, 3, 1}, std::string_view("\0", 1)));  // frame 1 of 1
  EXPECT_TRUE(refused({1, 2, 3, 0}, "\x20"));                     // block 32 of a frame
  EXPECT_TRUE(refused({1, 2, 2 * 32 + 1, 0}, "\x01"));            // over its end
  EXPECT_TRUE(refused({1, 2, 2}));                                // a frame that nothing uses
  EXPECT_TRUE(refused({2, 2, 0, 3, 0, 0, 3, 1, 5}));              // one frame twice
  EXPECT_FALSE(refused({1, 2, 3, 0}, std::string_view("\0", 1)));
}

TEST(Frame, SurvivesARoundTripWhateverItHolds) {
  FrameEncoder encoder;
  FrameDecoder decoder;
  for (const std::vector<std::byte>& plain : {noise(kMaxFrameBytes, 1), text(kMaxFrameBytes), noise(kBlockBytes, 2),
                                              text(kBlockBytes), std::vector<std::byte>(5 * kBlockBytes)}) {
    std::vector<std::byte> stored(plain.size()), out(plain.size());
    const FrameEntry entry = encoder.encode(plain, block_digests(plain), stored);
    ASSERT_LE(entry.stored_bytes, plain.size());
    ASSERT_TRUE(decoder.decode(entry, std::span(stored).first(entry.stored_bytes), out));
    EXPECT_EQ(out, plain);
  }
}

// A flipped bit that zstd does not look at changes nothing that anybody reads.
TEST(Frame, DamageIsToldOrHarmless) {
  FrameEncoder encoder;
  FrameDecoder decoder;
  for (const std::vector<std::byte>& plain : {noise(2 * kBlockBytes, 3), text(2 * kBlockBytes)}) {
    std::vector<std::byte> stored(plain.size()), out(plain.size());
    const FrameEntry entry = encoder.encode(plain, block_digests(plain), stored);
    stored.resize(entry.stored_bytes);
    for (size_t i = 0; i < stored.size(); i++) {
      stored[i] ^= std::byte{0x10};
      const bool accepted = decoder.decode(entry, stored, out).has_value();
      EXPECT_TRUE(!accepted || out == plain) << "byte " << i;
      stored[i] ^= std::byte{0x10};
    }
    EXPECT_FALSE(decoder.decode(entry, std::span(stored).first(stored.size() - 1), out));
    FrameEntry other = entry;
    other.digest.bytes[31] ^= std::byte{1};
    EXPECT_FALSE(decoder.decode(other, stored, out));
    other = entry;
    other.codec = entry.codec == FrameCodec::kPlain ? FrameCodec::kZstd : FrameCodec::kPlain;
    EXPECT_FALSE(decoder.decode(other, stored, out));
  }
}

PackId sample_id() {
  PackId id;
  for (size_t i = 0; i < id.size(); i++) id[i] = static_cast<std::byte>(0xa0 + i);
  return id;
}

PackTail sample_tail() {
  FrameEncoder encoder;
  std::vector<std::byte> stored(kMaxFrameBytes);
  PackTail tail;
  uint32_t offset = kPackHeaderBytes;
  for (const std::vector<std::byte>& plain : {noise(2 * kBlockBytes, 4), text(kMaxFrameBytes)}) {
    FrameEntry e = encoder.encode(plain, block_digests(plain), stored);
    e.id = 1000 + tail.frames.size();
    e.offset = offset;
    offset += e.stored_bytes;
    tail.frames.push_back(e);
    tail.prints.emplace_back();
    for (size_t at = 0; at < plain.size(); at += kBlockBytes)
      tail.prints.back().push_back(print_of(std::span(plain).subspan(at, kBlockBytes)));
  }
  Recipe r;
  r.append({.blocks = 32, .frame = 1001, .first = 0});
  r.append({.blocks = 96, .frame = std::nullopt, .first = 0});
  tail.chunks.push_back({digest_of(text(kBlockBytes)), r});
  tail.chunks.push_back({digest_of(text(2 * kBlockBytes)), sample_recipe()});
  return tail;
}

PackFooter footer_for(const std::string& tail) {
  return {.id = sample_id(), .tail_offset = 20000, .tail_bytes = tail.size(), .tail_crc = crc32c(tail.data(), tail.size())};
}

TEST(Pack, HeaderAndFooterAreChecked) {
  const auto header = encode_pack_header({sample_id()});
  EXPECT_EQ(decode_pack_header(header)->id, sample_id());
  const PackFooter footer{.id = sample_id(), .tail_offset = 64, .tail_bytes = 1000, .tail_crc = 5};
  const auto bytes = encode_pack_footer(footer);
  EXPECT_EQ(decode_pack_footer(bytes, 4096).value(), footer);
  for (size_t i = 0; i < 64; i++) {
    auto bad_header = header;
    bad_header[i] ^= std::byte{1};
    EXPECT_FALSE(decode_pack_header(bad_header)) << i;
    auto bad_footer = bytes;
    bad_footer[i] ^= std::byte{1};
    EXPECT_FALSE(decode_pack_footer(bad_footer, 4096)) << i;
  }
  EXPECT_FALSE(decode_pack_footer(bytes, 1127));  // the tail would lie over the footer
  EXPECT_TRUE(decode_pack_footer(bytes, 1128));
  EXPECT_FALSE(decode_pack_footer(bytes, kMaxPackBytes + 1));
  EXPECT_FALSE(decode_pack_footer(encode_pack_footer({.tail_offset = 63}), 4096));
  EXPECT_FALSE(decode_pack_footer(encode_pack_footer({.tail_offset = 64, .tail_bytes = ~uint64_t{0}}), 4096));
}

TEST(Pack, TailSurvivesARoundTripAndTellsEveryDamage) {
  const std::string bytes = encode_pack_tail(sample_tail());
  const PackFooter footer = footer_for(bytes);
  EXPECT_EQ(decode_pack_tail(as_bytes(bytes), footer).value(), sample_tail());
  for (size_t i = 0; i < bytes.size(); i++) {
    std::string bad = bytes;
    bad[i] ^= 0x40;
    EXPECT_FALSE(decode_pack_tail(as_bytes(bad), footer)) << i;
  }
}

// With the checksum made right: what an attacker would write.
TEST(Pack, TailWithRightChecksumIsStillRefusedWhereItContradictsItself) {
  const auto decode = [](const std::string& bytes, uint64_t tail_offset = 20000) {
    PackFooter footer = footer_for(bytes);
    footer.tail_offset = tail_offset;
    return decode_pack_tail(as_bytes(bytes), footer);
  };
  const std::string bytes = encode_pack_tail(sample_tail());
  for (size_t cut = 0; cut < bytes.size(); cut++) EXPECT_FALSE(decode(bytes.substr(0, cut))) << cut;
  EXPECT_FALSE(decode(bytes + "x"));
  EXPECT_FALSE(decode(bytes, 5000));  // a frame that reaches into the tail
  PackTail tail = sample_tail();
  tail.frames[0].blocks = 33;
  tail.prints[0].resize(33);
  EXPECT_FALSE(decode(encode_pack_tail(tail)));
  tail = sample_tail();
  tail.chunks[0].recipe.extents.clear();
  EXPECT_FALSE(decode(encode_pack_tail(tail)));
}

// The bytes of version 2 stay readable: the golden file was written by a program of its own, from docs/formats/pack.md.
TEST(Pack, GoldenFileIsReadable) {
  const std::string file = read_file(std::string(RAMET_GOLDEN_DIR) + "/pack_v2.bin").value();
  ASSERT_EQ(file.size() % kPackAlignment, 0u);
  const std::span<const std::byte> bytes = as_bytes(file);
  const Result<PackHeader> header = decode_pack_header(bytes.first<kPackHeaderBytes>());
  const Result<PackFooter> footer = decode_pack_footer(bytes.last<kPackFooterBytes>(), file.size());
  ASSERT_TRUE(header && footer);
  EXPECT_EQ(header->id, footer->id);
  EXPECT_EQ(header->id, sample_id());
  const Result<PackTail> tail = decode_pack_tail(bytes.subspan(footer->tail_offset, footer->tail_bytes), *footer);
  ASSERT_TRUE(tail) << tail.error().message();
  ASSERT_EQ(tail->frames.size(), 2u);
  FrameDecoder decoder;
  std::vector<std::byte> plain(2 * kBlockBytes);
  ASSERT_TRUE(decoder.decode(tail->frames[0], bytes.subspan(tail->frames[0].offset, tail->frames[0].stored_bytes), plain));
  for (size_t i = 0; i < plain.size(); i++) ASSERT_EQ(plain[i], static_cast<std::byte>(i * 7 + i / 256)) << i;
  plain.resize(3 * kBlockBytes);
  ASSERT_TRUE(decoder.decode(tail->frames[1], bytes.subspan(tail->frames[1].offset, tail->frames[1].stored_bytes), plain));
  EXPECT_EQ(plain, std::vector<std::byte>(plain.size(), std::byte{'R'}));
  ASSERT_EQ(tail->chunks.size(), 1u);
  Recipe r;
  r.append({.blocks = 2, .frame = 300, .first = 0});
  r.append({.blocks = 125, .frame = std::nullopt, .first = 0});
  r.append({.blocks = 1, .frame = 5, .first = 2});
  EXPECT_EQ(tail->chunks[0].recipe, r);
}

}  // namespace
}  // namespace ramet::chunk
