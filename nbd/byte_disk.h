// byte_disk.h - a disk of 4 KiB blocks read and written by the byte, as NBD clients may: ends of a request that cover part of a
// block are read, changed and written back, and nobody's bytes get lost by that. Not here: NBD, parameters, errno.
// Thread: every method concurrently with every other. Owner: ServedDisk; owns the block target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "image/source.h"
#include "range_lock.h"

namespace ramet::nbd {

class ByteDisk {
 public:
  explicit ByteDisk(std::unique_ptr<image::BlockTarget> target) : target_(std::move(target)) {}

  uint64_t size_bytes() const { return target_->size_blocks() * image::kBlockBytes; }
  // Errors of all: kInvalid (not on the disk), those of BlockTarget. After an error each byte has its old or its new value.
  Status read(uint64_t offset, std::span<std::byte> to) const;
  Status write(uint64_t offset, std::span<const std::byte> from);
  Status zero(uint64_t offset, uint64_t length);
  // Whole blocks inside become zero and give their space back; the ends stay as they are.
  Status discard(uint64_t offset, uint64_t length);
  Status flush() { return target_->flush(); }

  // The stretch at `offset`, cut to `length`, that is known to be zero, or may be data.   Requires: on the disk, not empty.
  struct Stretch {
    uint64_t bytes = 0;
    bool zero = false;
  };
  Stretch content_at(uint64_t offset, uint64_t length) const;

 private:
  Status check(uint64_t offset, uint64_t length) const;
  Status read_block(uint64_t block, std::span<std::byte> to) const;
  template <class Change>
  Status change_block(uint64_t block, Change change);

  const std::unique_ptr<image::BlockTarget> target_;
  RangeLock changing_;
};

}  // namespace ramet::nbd
