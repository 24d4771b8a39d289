// chunk/pack_format.h - bytes of a pack (docs/formats/pack.md): header, frames, tail, footer. A pack is written once, whole,
// and never changed. All that an index needs can be read from its end, so the index can be rebuilt from packs alone. Pure: no
// I/O; nothing is allocated before its limit was checked. Thread: values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "chunk/frame.h"

namespace ramet::chunk {

inline constexpr uint32_t kPackVersion = 2;
inline constexpr size_t kPackHeaderBytes = 64;
inline constexpr size_t kPackFooterBytes = 64;
inline constexpr uint64_t kMaxPackBytes = 64u << 20;
inline constexpr uint64_t kPackAlignment = 4096;  // of its length: packs are written past the page cache

using PackId = std::array<std::byte, 16>;  // random; also the file's name, in hexadecimal

struct PackHeader {
  PackId id{};
  friend bool operator==(const PackHeader&, const PackHeader&) = default;
};

struct PackChunk {
  Digest digest;  // of the plain chunk
  Recipe recipe;
  friend bool operator==(const PackChunk&, const PackChunk&) = default;
};

struct PackTail {
  std::vector<FrameEntry> frames;               // by offset, one after the other from kPackHeaderBytes on
  std::vector<std::vector<BlockPrint>> prints;  // of each frame, one for each of its blocks
  std::vector<PackChunk> chunks;
  friend bool operator==(const PackTail&, const PackTail&) = default;
};

struct PackFooter {
  PackId id{};
  uint64_t tail_offset = 0;
  uint64_t tail_bytes = 0;
  uint32_t tail_crc = 0;
  uint32_t body_crc = 0;  // of all bytes before the footer
  friend bool operator==(const PackFooter&, const PackFooter&) = default;
};

std::array<std::byte, kPackHeaderBytes> encode_pack_header(const PackHeader& header);
// Errors: kCorrupt, kUnsupported (a later version).
Result<PackHeader> decode_pack_header(std::span<const std::byte, kPackHeaderBytes> bytes);

std::array<std::byte, kPackFooterBytes> encode_pack_footer(const PackFooter& footer);
// `pack_bytes` is the length of the file.   Errors: kCorrupt, kUnsupported.
Result<PackFooter> decode_pack_footer(std::span<const std::byte, kPackFooterBytes> bytes, uint64_t pack_bytes);

std::string encode_pack_tail(const PackTail& tail);
// Errors: kCorrupt.
Result<PackTail> decode_pack_tail(std::span<const std::byte> bytes, const PackFooter& footer);

}  // namespace ramet::chunk
