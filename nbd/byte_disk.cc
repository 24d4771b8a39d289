#include "byte_disk.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/checked.h"

namespace ramet::nbd {
namespace {

using image::BlockRange;
using image::kBlockBytes;

// Of a request: either whole blocks, or a part of one.
struct Piece {
  BlockRange blocks;
  uint64_t within = 0;  // bytes of the first block before it
  uint64_t bytes = 0;
  bool whole() const { return bytes == blocks.count * kBlockBytes; }
};

// Calls visit(piece, bytes of the request before it) in order; its first error ends it.
template <class F>
Status for_pieces(uint64_t offset, uint64_t length, F visit) {
  for (uint64_t done = 0; done < length;) {
    const uint64_t first = (offset + done) / kBlockBytes, within = (offset + done) % kBlockBytes, left = length - done;
    Piece piece{{first, 1}, within, std::min(left, kBlockBytes - within)};
    if (within == 0 && left >= kBlockBytes) {
      piece.blocks.count = left / kBlockBytes;
      piece.bytes = piece.blocks.count * kBlockBytes;
    }
    TRY(visit(piece, done));
    done += piece.bytes;
  }
  return {};
}

iovec buffer_of(std::span<const std::byte> bytes) { return {const_cast<std::byte*>(bytes.data()), bytes.size()}; }

}  // namespace

Status ByteDisk::check(uint64_t offset, uint64_t length) const {
  if (range_within(offset, length, size_bytes())) return {};
  return fail(ErrorKind::kInvalid, "bytes " + std::to_string(offset) + "+" + std::to_string(length) + " are not on a disk of " +
                                       std::to_string(size_bytes()));
}

Status ByteDisk::read_block(uint64_t block, std::span<std::byte> to) const {
  const iovec buffer = buffer_of(to);
  TRY(target_->read({block, 1}, {&buffer, 1}, image::Wait::kAllowed));
  return {};
}

template <class Change>
Status ByteDisk::change_block(uint64_t block, Change change) {
  const RangeLock::Hold alone(changing_, {block, 1}, RangeLock::Mode::kAlone);
  std::array<std::byte, kBlockBytes> bytes;
  TRY(read_block(block, bytes));
  change(std::span(bytes));
  const iovec buffer = buffer_of(bytes);
  return target_->write({block, 1}, {&buffer, 1});
}

Status ByteDisk::read(uint64_t offset, std::span<std::byte> to) const {
  TRY(check(offset, to.size()));
  return for_pieces(offset, to.size(), [&](const Piece& piece, uint64_t done) -> Status {
    const std::span<std::byte> part = to.subspan(done, piece.bytes);
    if (piece.whole()) {
      const iovec buffer = buffer_of(part);
      TRY(target_->read(piece.blocks, {&buffer, 1}, image::Wait::kAllowed));
      return {};
    }
    std::array<std::byte, kBlockBytes> block;
    TRY(read_block(piece.blocks.first, block));
    std::memcpy(part.data(), block.data() + piece.within, part.size());
    return {};
  });
}

Status ByteDisk::write(uint64_t offset, std::span<const std::byte> from) {
  TRY(check(offset, from.size()));
  return for_pieces(offset, from.size(), [&](const Piece& piece, uint64_t done) -> Status {
    const std::span<const std::byte> part = from.subspan(done, piece.bytes);
    if (!piece.whole())
      return change_block(piece.blocks.first, [&](std::span<std::byte> block) {
        std::memcpy(block.data() + piece.within, part.data(), part.size());
      });
    const RangeLock::Hold shared(changing_, piece.blocks, RangeLock::Mode::kShared);
    const iovec buffer = buffer_of(part);
    return target_->write(piece.blocks, {&buffer, 1});
  });
}

Status ByteDisk::zero(uint64_t offset, uint64_t length) {
  TRY(check(offset, length));
  return for_pieces(offset, length, [&](const Piece& piece, uint64_t) -> Status {
    if (!piece.whole())
      return change_block(piece.blocks.first,
                          [&](std::span<std::byte> block) { std::memset(block.data() + piece.within, 0, piece.bytes); });
    const RangeLock::Hold shared(changing_, piece.blocks, RangeLock::Mode::kShared);
    return target_->zero(piece.blocks);
  });
}

Status ByteDisk::discard(uint64_t offset, uint64_t length) {
  TRY(check(offset, length));
  return for_pieces(offset, length, [&](const Piece& piece, uint64_t) -> Status {
    if (!piece.whole()) return {};
    const RangeLock::Hold shared(changing_, piece.blocks, RangeLock::Mode::kShared);
    return target_->zero(piece.blocks);
  });
}

ByteDisk::Stretch ByteDisk::content_at(uint64_t offset, uint64_t length) const {
  const uint64_t first = offset / kBlockBytes, within = offset % kBlockBytes;
  const uint64_t end = (offset + length - 1) / kBlockBytes + 1;
  const image::BlockSource::Content content = target_->content_at({first, end - first});
  return {std::min(length, content.range.count * kBlockBytes - within), content.zero};
}

}  // namespace ramet::nbd
