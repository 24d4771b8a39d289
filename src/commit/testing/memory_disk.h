// commit/testing/memory_disk.h - bytes as a disk; what is left of the last block is zeros. Thread: any, reading only.
#pragma once

#include <span>

#include "image/iovecs.h"
#include "image/source.h"

namespace ramet::commit::testing {

class MemoryDisk final : public image::BlockSource {
 public:
  explicit MemoryDisk(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t size_blocks() const override { return (bytes_.size() + image::kBlockBytes - 1) / image::kBlockBytes; }
  Result<bool> read(image::BlockRange range, std::span<const iovec> to, image::Wait) const override {
    if (!image::range_fits(range, size_blocks())) return fail(ErrorKind::kInvalid, "block range is not on the disk");
    const uint64_t first = range.first * image::kBlockBytes, bytes = range.count * image::kBlockBytes;
    const uint64_t there = std::min<uint64_t>(bytes, bytes_.size() - first);
    image::IovecCursor cursor(to);
    cursor.copy(bytes_.subspan(first, there));
    cursor.zero(bytes - there);
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace ramet::commit::testing
