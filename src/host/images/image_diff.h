// host/images/image_diff.h - where two images of equal size differ, block by block. Chunks with one name are not even read.
// Thread: any; slow where much differs.
#pragma once

#include <cstdint>
#include <vector>

#include "host/images/image_store.h"

namespace ramet::host {

struct ImageDiff {
  static constexpr size_t kMostRanges = 1000;
  uint64_t changed_chunks = 0;
  uint64_t changed_blocks = 0;
  std::vector<image::BlockRange> ranges;  // of blocks, ascending; the first kMostRanges of them
  bool truncated = false;
};
// Errors: kInvalid (of different size), those of the store.
Result<ImageDiff> diff_images(ImageStore& images, OpenImage& a, OpenImage& b);

}  // namespace ramet::host
