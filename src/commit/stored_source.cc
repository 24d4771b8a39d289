#include "commit/stored_source.h"

#include <algorithm>

#include "image/iovecs.h"

namespace ramet::commit {

using image::kBlockBytes;
using image::kChunkBlocks;

Result<std::span<const std::byte>> StoredSource::chunk(uint64_t number) const {
  TRY_ASSIGN(const Digest name, manifest_.chunk(number));
  if (name == image::kZeros) return std::span<const std::byte>();
  if (name != kept_name_) {
    kept_name_ = image::kZeros;
    TRY_ASSIGN(kept_, store_.get(name));
    kept_name_ = name;
  }
  TRY(check_chunk_bytes(manifest_.root(), number, kept_.size()));
  return std::span<const std::byte>(kept_);
}

Result<bool> StoredSource::read(image::BlockRange range, std::span<const iovec> to, image::Wait wait) const {
  if (!image::range_fits(range, size_blocks())) return fail(ErrorKind::kInvalid, "block range is not on the disk");
  if (wait != image::Wait::kAllowed) return false;
  const std::lock_guard lock(mutex_);
  image::IovecCursor cursor(to);
  while (range.count > 0) {
    const uint64_t number = range.first / kChunkBlocks, within = range.first % kChunkBlocks;
    const uint64_t blocks = std::min(range.count, kChunkBlocks - within);
    TRY_ASSIGN(const std::span<const std::byte> bytes, chunk(number));
    if (bytes.empty())
      cursor.zero(blocks * kBlockBytes);
    else
      cursor.copy(bytes.subspan(within * kBlockBytes, blocks * kBlockBytes));
    range = {range.first + blocks, range.count - blocks};
  }
  return true;
}

}  // namespace ramet::commit
