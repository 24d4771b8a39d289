// image/zero_runs.h - blocks in a buffer, in runs that are, or are not, all zero. Thread: stateless.
#pragma once

#include <span>

#include "base/all_zero.h"
#include "base/file.h"
#include "base/result.h"
#include "image/block.h"

namespace ramet::image {

// Calls run(range within the buffer's blocks, zero) for each run, in order; its first error ends it.   Requires: whole blocks.
template <class F>
Status for_zero_runs(std::span<const std::byte> bytes, F run) {
  const auto is_zero = [&](uint64_t block) { return all_zero(bytes.subspan(block * kBlockBytes, kBlockBytes)); };
  const uint64_t blocks = bytes.size() / kBlockBytes;
  for (uint64_t at = 0; at < blocks;) {
    const bool zero = is_zero(at);
    uint64_t end = at + 1;
    while (end < blocks && is_zero(end) == zero) end++;
    TRY(run(BlockRange{at, end - at}, zero));
    at = end;
  }
  return {};
}

// What is not zero, into a file that is zero there: the rest stays a hole.   Requires: whole blocks.   Errors: those of
// pwrite_all().
inline Status write_nonzero(int file, uint64_t offset, std::span<const std::byte> bytes) {
  return for_zero_runs(bytes, [&](BlockRange run, bool zero) -> Status {
    if (zero) return {};
    const uint64_t at = run.first * kBlockBytes;
    return pwrite_all(file, bytes.subspan(at, run.count * kBlockBytes), offset + at);
  });
}

}  // namespace ramet::image
