// chunk/digest.h - SHA-256, the name of a chunk and the proof of a frame; and the short prefix by which blocks are compared.
// Thread: pure functions. Source: FIPS 180-4, by OpenSSL.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <span>

#include "base/digest.h"

namespace ramet::chunk {

Digest sha256(std::span<const std::byte> data);

// The first 16 bytes of a block's SHA-256. Two blocks with the same one are taken for equal: finding such a pair on purpose
// takes 2^64 steps, and harms only the domain of whoever does, where the chunk's own digest then tells it.
struct BlockPrint {
  std::array<std::byte, 16> bytes{};
  friend auto operator<=>(const BlockPrint&, const BlockPrint&) = default;
};
BlockPrint print_of(std::span<const std::byte> block);

}  // namespace ramet::chunk
