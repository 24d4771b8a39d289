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

}  // namespace ramet::chunk
