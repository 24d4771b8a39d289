// chunk/side_by_side.h - SHA-256 of many blocks side by side, in the lanes of vector registers: twice the rate of one after the
// other, where each step waits for the one before. By libipsec-mb. Not here: what the digests are for (digest.h). Thread: pure.
#pragma once

#include <span>

#include "base/digest.h"

namespace ramet::chunk {

// To set it up takes as long as hashing a hundred blocks, and this hashes many more.
inline constexpr size_t kWorthSideBySide = 512;

// The digests of blocks that are not all zero; of the others that of zeros. False: this processor or this moment has not what
// it takes, and `out` holds anything.   Requires: whole blocks, one digest for each.
bool digests_side_by_side(std::span<const std::byte> blocks, std::span<Digest> out);

}  // namespace ramet::chunk
