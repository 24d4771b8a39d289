#include "image/chunked_source.h"

#include <algorithm>

#include "image/iovecs.h"

namespace ramet::image {

Result<bool> ChunkedSource::read(BlockRange range, std::span<const iovec> to, Wait wait) const {
  if (!range_fits(range, blocks_)) return fail(ErrorKind::kInvalid, "block range is not on the disk");
  IovecCursor cursor(to);
  uint64_t offset = range.first * kBlockBytes;
  uint64_t left = range.count * kBlockBytes;
  while (left > 0) {
    const uint64_t chunk = offset / kChunkBytes;
    const uint64_t within = offset % kChunkBytes;
    // Buffers cut into very many pieces take several turns.
    const std::span<const iovec> pieces = cursor.peek(std::min(left, kChunkBytes - within));
    uint64_t done = total_bytes(pieces);
    if (held_.is_zero(chunk)) {
      cursor.zero(done);
    } else if (const HeldChunks::Pin pin = held_.find(chunk)) {
      const Result<bool> read = read_at(pin.fd(), within, pieces, wait);
      if (!read || !*read) return read;
      cursor.advance(done);
    } else if (wait == Wait::kNever) {
      return false;
    } else {
      TRY_ASSIGN(done, fetch(offset, done, cursor));
    }
    offset += done;
    left -= done;
  }
  return true;
}

BlockSource::Content ChunkedSource::content_at(BlockRange range) const {
  const uint64_t first = range.first / kChunkBlocks;
  const bool zero = held_.is_zero(first);
  uint64_t end = first + 1;
  while (end * kChunkBlocks < range.end() && held_.is_zero(end) == zero) end++;
  return {{range.first, std::min(range.end(), end * kChunkBlocks) - range.first}, zero};
}

// As much of the bytes as one answer brings; 0: the chunk is held now.
Result<uint64_t> ChunkedSource::fetch(uint64_t offset, uint64_t bytes, IovecCursor& to) const {
  const uint64_t first = offset / kBlockBytes, end = (offset + bytes + kBlockBytes - 1) / kBlockBytes;
  TRY_ASSIGN(const Answer answer, client_.ask(first, static_cast<uint32_t>(end - first)));
  if (answer.kind == Answer::Kind::kChunk) return 0;
  const uint64_t n = std::min(bytes, answer.range.end() * kBlockBytes - offset);
  if (answer.kind == Answer::Kind::kZeros) {
    held_.mark_zero(answer.range);
    to.zero(n);
  } else {
    to.copy(answer.bytes.subspan(offset - answer.range.first * kBlockBytes, n));
  }
  return n;
}

}  // namespace ramet::image
