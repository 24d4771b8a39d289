// image/block.h - the unit of disks: a block is 4 KiB, a chunk 4096 blocks (16 MiB). Thread: values.
#pragma once

#include <cstdint>

#include "base/checked.h"

namespace ramet::image {

inline constexpr uint64_t kBlockBytes = 4096;
inline constexpr uint64_t kChunkBlocks = 4096;
inline constexpr uint64_t kChunkBytes = kChunkBlocks * kBlockBytes;
inline constexpr uint64_t kMaxDiskBlocks = (64ull << 40) / kBlockBytes;  // 64 TiB

struct BlockRange {
  uint64_t first = 0;
  uint64_t count = 0;
  uint64_t end() const { return first + count; }
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};
// False when it is not inside a disk of that many blocks (no sum wraps).
constexpr bool range_fits(BlockRange r, uint64_t disk_blocks) { return range_within(r.first, r.count, disk_blocks); }

}  // namespace ramet::image
