// chunk/prepared.h - what can be known of a chunk without any store: which blocks are zero, the digests, its name.
// Most of a put's work; any thread may do it, beside the batch's. A value.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "chunk/digest.h"
#include "chunk/matcher.h"

namespace ramet::chunk {

struct Prepared {
  std::span<const std::byte> plain;
  std::vector<BlockFacts> facts;
  std::optional<Digest> name;  // absent: all zero
};

// Requires: the bytes stay as they are until they were put.   Errors: kInvalid (not whole blocks, 1 to kMaxChunkBlocks).
Result<Prepared> prepare(std::span<const std::byte> plain);
// Of bytes that are zeros, without looking.   Requires: whole blocks, 1 to kMaxChunkBlocks.
Prepared prepared_zeros(std::span<const std::byte> plain);
// Its bytes were changed in these blocks: only they are looked at again.   Requires: blocks that it has.
void prepare_again(Prepared& chunk, std::span<const uint32_t> changed_blocks);

}  // namespace ramet::chunk
