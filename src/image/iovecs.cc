#include "image/iovecs.h"

#include <algorithm>
#include <cstring>

namespace ramet::image {

uint64_t total_bytes(std::span<const iovec> list) {
  uint64_t sum = 0;
  for (const iovec& v : list) sum += v.iov_len;
  return sum;
}

std::span<const iovec> IovecCursor::peek(uint64_t bytes) {
  // The common case: everything that is left, from the start of a buffer.
  if (within_ == 0 && list_.size() - index_ == 1 && list_[index_].iov_len <= bytes) return list_.subspan(index_);
  pieces_.clear();
  uint64_t skip = within_;
  for (size_t i = index_; i < list_.size() && bytes > 0 && pieces_.size() < kMaxPieces; i++) {
    const uint64_t n = std::min<uint64_t>(list_[i].iov_len - skip, bytes);
    if (n > 0) pieces_.push_back({static_cast<std::byte*>(list_[i].iov_base) + skip, n});
    bytes -= n;
    skip = 0;
  }
  return pieces_;
}

void IovecCursor::advance(uint64_t bytes) {
  while (bytes > 0 && index_ < list_.size()) {
    const uint64_t n = std::min<uint64_t>(list_[index_].iov_len - within_, bytes);
    within_ += n;
    bytes -= n;
    if (within_ == list_[index_].iov_len) {
      index_++;
      within_ = 0;
    }
  }
}

void IovecCursor::zero(uint64_t bytes) {
  while (bytes > 0) {
    const std::span<const iovec> pieces = peek(bytes);
    if (pieces.empty()) return;
    const uint64_t n = total_bytes(pieces);
    for (const iovec& v : pieces) std::memset(v.iov_base, 0, v.iov_len);
    advance(n);
    bytes -= n;
  }
}

void IovecCursor::copy(std::span<const std::byte> from) {
  while (!from.empty()) {
    const std::span<const iovec> pieces = peek(from.size());
    if (pieces.empty()) return;
    const uint64_t n = total_bytes(pieces);
    for (const iovec& v : pieces) {
      std::memcpy(v.iov_base, from.data(), v.iov_len);
      from = from.subspan(v.iov_len);
    }
    advance(n);
  }
}

}  // namespace ramet::image
