#include "chunk/pack_format.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "chunk/varint.h"

namespace ramet::chunk {
namespace {

constexpr std::array<char, 8> kHeaderMagic = {'R', 'M', 'T', 'P', 'A', 'C', 'K', 'H'};
constexpr std::array<char, 8> kFooterMagic = {'R', 'M', 'T', 'P', 'A', 'C', 'K', 'F'};

struct HeaderBytes {
  std::array<char, 8> magic;
  le32 version, header_bytes;
  PackId id;
  std::array<std::byte, 28> reserved;
  le32 crc;
};
static_assert(sizeof(HeaderBytes) == kPackHeaderBytes);

struct FooterBytes {
  std::array<char, 8> magic;
  le32 version, footer_bytes;
  PackId id;
  le64 tail_offset, tail_bytes;
  le32 tail_crc, body_crc;
  std::array<std::byte, 4> reserved;
  le32 crc;
};
static_assert(sizeof(FooterBytes) == kPackFooterBytes);

tl::unexpected<Error> corrupt(const std::string& what) { return fail(ErrorKind::kCorrupt, "pack: " + what); }

// Magic, version and checksum, which header and footer have at the same places.
template <class Bytes>
Status check_fixed(const Bytes& b, const std::array<char, 8>& magic, const char* what) {
  if (b.magic != magic) return corrupt(std::string("no ") + what + " where one must be");
  if (b.crc != crc32c(&b, sizeof b - sizeof b.crc)) return corrupt(std::string("wrong checksum of the ") + what);
  if (b.version != kPackVersion)
    return fail(ErrorKind::kUnsupported,
                "pack of version " + std::to_string(b.version) + ", this program reads " + std::to_string(kPackVersion));
  const bool clear = std::all_of(b.reserved.begin(), b.reserved.end(), [](std::byte x) { return x == std::byte{0}; });
  if (!clear) return corrupt(std::string("reserved bytes of the ") + what + " are not zero");
  return {};
}

std::string_view view(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

bool take_frame(Decoder& in, uint64_t& offset, uint64_t end, FrameEntry& entry, std::vector<BlockPrint>& prints) {
  const std::optional<uint64_t> id = in.varint(), stored = id ? in.varint() : std::nullopt;
  const std::optional<uint8_t> blocks = stored ? in.byte() : std::nullopt, codec = blocks ? in.byte() : std::nullopt;
  if (!codec || is_common(*id) || *blocks == 0 || *blocks > kFrameBlocks || *codec > static_cast<uint8_t>(FrameCodec::kZstd))
    return false;
  if (*stored == 0 || *stored > kMaxFrameBytes || !range_within(offset, *stored, end)) return false;
  entry = {.id = *id,
           .offset = static_cast<uint32_t>(offset),
           .stored_bytes = static_cast<uint32_t>(*stored),
           .blocks = *blocks,
           .codec = static_cast<FrameCodec>(*codec),
           .digest = {}};
  if (!in.bytes(entry.digest.bytes)) return false;
  offset += *stored;
  prints.resize(*blocks);
  for (BlockPrint& print : prints)
    if (!in.bytes(print.bytes)) return false;
  return true;
}

bool take_chunk(Decoder& in, PackChunk& chunk) {
  if (!in.bytes(chunk.digest.bytes)) return false;
  const std::optional<uint64_t> length = in.varint();
  const std::optional<std::span<const std::byte>> bytes = length ? in.view(*length) : std::nullopt;
  std::optional<Recipe> recipe = bytes ? decode_recipe(*bytes) : std::nullopt;
  if (!recipe || recipe->extents.empty()) return false;
  chunk.recipe = *std::move(recipe);
  return true;
}

}  // namespace

std::array<std::byte, kPackHeaderBytes> encode_pack_header(const PackHeader& header) {
  HeaderBytes b{.magic = kHeaderMagic,
                .version = kPackVersion,
                .header_bytes = kPackHeaderBytes,
                .id = header.id,
                .reserved = {},
                .crc = {}};
  b.crc = crc32c(&b, sizeof b - sizeof b.crc);
  return std::bit_cast<std::array<std::byte, kPackHeaderBytes>>(b);
}

Result<PackHeader> decode_pack_header(std::span<const std::byte, kPackHeaderBytes> bytes) {
  HeaderBytes b;
  std::memcpy(&b, bytes.data(), sizeof b);
  TRY(check_fixed(b, kHeaderMagic, "header"));
  if (b.header_bytes != kPackHeaderBytes) return corrupt("a header of another length");
  return PackHeader{b.id};
}

std::array<std::byte, kPackFooterBytes> encode_pack_footer(const PackFooter& footer) {
  FooterBytes b{.magic = kFooterMagic,
                .version = kPackVersion,
                .footer_bytes = kPackFooterBytes,
                .id = footer.id,
                .tail_offset = footer.tail_offset,
                .tail_bytes = footer.tail_bytes,
                .tail_crc = footer.tail_crc,
                .body_crc = footer.body_crc,
                .reserved = {},
                .crc = {}};
  b.crc = crc32c(&b, sizeof b - sizeof b.crc);
  return std::bit_cast<std::array<std::byte, kPackFooterBytes>>(b);
}

Result<PackFooter> decode_pack_footer(std::span<const std::byte, kPackFooterBytes> bytes, uint64_t pack_bytes) {
  FooterBytes b;
  std::memcpy(&b, bytes.data(), sizeof b);
  TRY(check_fixed(b, kFooterMagic, "footer"));
  if (b.footer_bytes != kPackFooterBytes) return corrupt("a footer of another length");
  const PackFooter footer{b.id, b.tail_offset, b.tail_bytes, b.tail_crc, b.body_crc};
  if (pack_bytes > kMaxPackBytes || pack_bytes < kPackHeaderBytes + kPackFooterBytes || footer.tail_offset < kPackHeaderBytes ||
      !range_within(footer.tail_offset, footer.tail_bytes, pack_bytes - kPackFooterBytes))
    return corrupt("the tail at " + std::to_string(footer.tail_offset) + ", " + std::to_string(footer.tail_bytes) +
                   " bytes long, does not lie in a pack of " + std::to_string(pack_bytes));
  return footer;
}

std::string encode_pack_tail(const PackTail& tail) {
  std::string out;
  append_varint(out, tail.frames.size());
  for (size_t i = 0; i < tail.frames.size(); i++) {
    const FrameEntry& e = tail.frames[i];
    append_varint(out, e.id);
    append_varint(out, e.stored_bytes);
    out += static_cast<char>(e.blocks);
    out += static_cast<char>(e.codec);
    out += view(e.digest.bytes);
    for (const BlockPrint& print : tail.prints[i]) out += view(print.bytes);
  }
  append_varint(out, tail.chunks.size());
  for (const PackChunk& chunk : tail.chunks) {
    const std::string recipe = encode_recipe(chunk.recipe);
    out += view(chunk.digest.bytes);
    append_varint(out, recipe.size());
    out += recipe;
  }
  return out;
}

Result<PackTail> decode_pack_tail(std::span<const std::byte> bytes, const PackFooter& footer) {
  if (bytes.size() != footer.tail_bytes || crc32c(bytes.data(), bytes.size()) != footer.tail_crc)
    return corrupt("wrong checksum of the tail");
  Decoder in(bytes);
  PackTail tail;
  uint64_t offset = kPackHeaderBytes;
  // No reservation by a number that was read: what does not follow ends the loop.
  const std::optional<uint64_t> frames = in.varint();
  for (uint64_t i = 0; frames && i < *frames; i++) {
    FrameEntry entry;
    std::vector<BlockPrint> prints;
    if (!take_frame(in, offset, footer.tail_offset, entry, prints))
      return corrupt("frame " + std::to_string(i) + " of the tail");
    tail.frames.push_back(entry);
    tail.prints.push_back(std::move(prints));
  }
  const std::optional<uint64_t> chunks = frames ? in.varint() : std::nullopt;
  for (uint64_t i = 0; chunks && i < *chunks; i++) {
    PackChunk chunk;
    if (!take_chunk(in, chunk)) return corrupt("chunk " + std::to_string(i) + " of the tail");
    tail.chunks.push_back(std::move(chunk));
  }
  if (!chunks || !in.at_end()) return corrupt("the tail does not end where it must");
  return tail;
}

}  // namespace ramet::chunk
