#include "commit/disk_commit.h"

#include <algorithm>

namespace ramet::commit {
namespace {

using image::BlockRange;
using image::kBlockBytes;
using image::kChunkBlocks;
using Extent = image::OverlayStack::Extent;

// The first chunk at or after `number` of which an overlay has a part; past the last one if there is none.
uint64_t next_touched(const image::OverlayStack& disk, uint64_t number) {
  uint64_t at = number * kChunkBlocks;
  while (at < disk.size_blocks()) {
    const Extent extent = disk.extent_at({at, disk.size_blocks() - at});
    if (extent.origin != Extent::Origin::kBase) return at / kChunkBlocks;
    at = extent.range.end();
  }
  return image::chunks_of(image::ImageKind::kDisk, disk.size_blocks());
}

// What is known to be zero is not read.
Status read_chunk(const image::OverlayStack& disk, BlockRange chunk, std::span<std::byte> out) {
  for (BlockRange left = chunk; left.count > 0;) {
    const Extent extent = disk.extent_at(left);
    const std::span<std::byte> to = out.subspan((left.first - chunk.first) * kBlockBytes, extent.range.count * kBlockBytes);
    if (extent.origin == Extent::Origin::kZero) {
      std::ranges::fill(to, std::byte{0});
    } else {
      const iovec v{to.data(), to.size()};
      TRY(disk.read(extent.range, {&v, 1}, image::Wait::kAllowed));
    }
    left = {extent.range.end(), left.count - extent.range.count};
  }
  return {};
}

Status check_shape(const image::OverlayStack& disk, const image::Manifest& manifest) {
  if (manifest.root().kind != image::ImageKind::kDisk) return fail(ErrorKind::kInvalid, "the image under a disk is of memory");
  if (manifest.root().blocks == disk.size_blocks()) return {};
  return fail(ErrorKind::kInvalid, "a disk of " + std::to_string(disk.size_blocks()) + " blocks over an image of " +
                                       std::to_string(manifest.root().blocks));
}

}  // namespace

Result<DiskCommit> commit_disk(const image::OverlayStack& disk, image::Manifest& manifest, chunk::Batch& batch,
                               const OnProgress& progress) {
  TRY(check_shape(disk, manifest));
  DiskCommit done;
  std::vector<std::byte> buffer(image::kChunkBytes);
  const uint64_t size_bytes = disk.size_blocks() * kBlockBytes;
  for (uint64_t number = next_touched(disk, 0); number < manifest.chunks(); number = next_touched(disk, number + 1)) {
    const uint64_t first = number * kChunkBlocks;
    const BlockRange chunk{first, std::min(kChunkBlocks, disk.size_blocks() - first)};
    const std::span<std::byte> bytes = std::span(buffer).first(chunk.count * kBlockBytes);
    TRY(read_chunk(disk, chunk, bytes));
    TRY_ASSIGN(const Digest before, manifest.chunk(number));
    TRY_ASSIGN(const Digest name, put_chunk(batch, bytes, before));
    TRY(manifest.set(number, name));
    done.touched_chunks++;
    done.changed_chunks += name != before;
    if (progress) progress({chunk.end() * kBlockBytes, size_bytes});
  }
  TRY(seal_into(batch, manifest));
  if (progress) progress({size_bytes, size_bytes});
  return done;
}

}  // namespace ramet::commit
