// chunk/digest.h - the digest of blocks: name of a chunk, proof of a frame; and the short form by which blocks are compared.
//
// Each byte goes through SHA-256 once: blocks are hashed one by one, and the digest of several is the SHA-256 of theirs, one
// after the other. Who knows what a chunk's blocks are has the names of the chunk and of the frames it is cut into almost for
// nothing, and zeros cost nothing (docs/decisions/0007). There is exactly one level, and no digest of a block is ever a name,
// so the two cannot be taken for each other. Thread: pure functions. Source: FIPS 180-4, by OpenSSL.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <span>
#include <vector>

#include "base/digest.h"

namespace ramet::chunk {

// Of any bytes at once, as other protocols want it (S3). Never a name of ours.
Digest sha256(std::span<const std::byte> data);

// The SHA-256 of one block.
Digest block_digest(std::span<const std::byte> block);
extern const Digest kZeroBlockDigest;

// Of what is no whole number of blocks the last one is hashed as short as it is, so that a file cut short is not taken for
// whole.
std::vector<Digest> block_digests(std::span<const std::byte> blocks);
Digest digest_of(std::span<const Digest> blocks);
inline Digest digest_of(std::span<const std::byte> blocks) { return digest_of(block_digests(blocks)); }

// The first 16 bytes of a block's digest. Two blocks with the same one are taken for equal: finding such a pair on purpose
// takes 2^64 steps, and harms only the domain of whoever does, where the chunk's own digest then tells it.
struct BlockPrint {
  std::array<std::byte, 16> bytes{};
  friend auto operator<=>(const BlockPrint&, const BlockPrint&) = default;
};
BlockPrint print_of(const Digest& block_digest);
inline BlockPrint print_of(std::span<const std::byte> block) { return print_of(block_digest(block)); }

}  // namespace ramet::chunk
