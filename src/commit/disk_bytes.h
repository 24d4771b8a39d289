// commit/disk_bytes.h - any bytes of a disk, in any order, through a small cache of pieces as large as a stored frame: what
// reads a file system asks for the same few places again and again. Memory: 8 MiB. Thread: one. Owner: the caller; must not
// outlive its source.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "image/source.h"

namespace ramet::commit {

class DiskBytes {
 public:
  explicit DiskBytes(const image::BlockSource& source) : source_(source) {}

  uint64_t size() const { return source_.size_blocks() * image::kBlockBytes; }
  // Errors: kInvalid (not on the disk), those of the source.
  Status read(uint64_t offset, std::span<std::byte> out);

 private:
  struct Piece {
    std::vector<std::byte> bytes;
    uint64_t used = 0;  // when, by clock_
  };
  Result<std::span<const std::byte>> piece(uint64_t number);
  void drop_oldest();

  const image::BlockSource& source_;
  std::map<uint64_t, Piece> pieces_;
  uint64_t clock_ = 0;
};

}  // namespace ramet::commit
