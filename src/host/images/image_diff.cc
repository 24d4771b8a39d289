#include "host/images/image_diff.h"

#include <cstring>

namespace ramet::host {
namespace {

using image::kBlockBytes;

void add_block(ImageDiff& diff, uint64_t block) {
  diff.changed_blocks++;
  if (!diff.truncated && !diff.ranges.empty() && diff.ranges.back().end() == block) {
    diff.ranges.back().count++;
  } else if (diff.ranges.size() < ImageDiff::kMostRanges) {
    diff.ranges.push_back({block, 1});
  } else {
    diff.truncated = true;
  }
}

// Zeros where the name stands for them.
Result<std::vector<std::byte>> chunk_bytes(ImageStore& images, const Digest& name, uint64_t blocks) {
  if (name == image::kZeros) return std::vector<std::byte>(blocks * kBlockBytes);
  TRY_ASSIGN(std::vector<std::byte> bytes, images.fetcher().chunk(name));
  bytes.resize(blocks * kBlockBytes);
  return bytes;
}

}  // namespace

Result<ImageDiff> diff_images(ImageStore& images, OpenImage& a, OpenImage& b) {
  if (a.root().kind != b.root().kind || a.blocks() != b.blocks())
    return fail(ErrorKind::kInvalid, "'" + a.id().name + "' has " + std::to_string(a.blocks() * kBlockBytes) + " bytes and '" +
                                         b.id().name + "' " + std::to_string(b.blocks() * kBlockBytes) +
                                         "; only images of one size can be compared");
  const uint64_t full = image::chunk_blocks(a.root().kind);
  ImageDiff diff;
  for (uint64_t number = 0; number < a.chunks(); number++) {
    TRY_ASSIGN(const Digest in_a, a.chunk(number));
    TRY_ASSIGN(const Digest in_b, b.chunk(number));
    if (in_a == in_b) continue;
    diff.changed_chunks++;
    const uint64_t blocks = a.blocks_of(number);
    TRY_ASSIGN(const std::vector<std::byte> old_bytes, chunk_bytes(images, in_a, blocks));
    TRY_ASSIGN(const std::vector<std::byte> new_bytes, chunk_bytes(images, in_b, blocks));
    for (uint64_t n = 0; n < blocks; n++)
      if (std::memcmp(&old_bytes[n * kBlockBytes], &new_bytes[n * kBlockBytes], kBlockBytes) != 0)
        add_block(diff, number * full + n);
  }
  return diff;
}

}  // namespace ramet::host
