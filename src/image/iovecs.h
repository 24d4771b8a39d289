// image/iovecs.h - walks a list of buffers piece by piece, as bulk reads and writes that change files in the middle need it.
// Thread: a value of one call.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ramet::image {

uint64_t total_bytes(std::span<const iovec> list);

class IovecCursor {
 public:
  static constexpr size_t kMaxPieces = 1024;  // IOV_MAX of Linux

  explicit IovecCursor(std::span<const iovec> list) : list_(list) {}

  // The next buffers, at most `bytes` long together and at most kMaxPieces. Does not advance; valid until the next call.
  std::span<const iovec> peek(uint64_t bytes);
  void advance(uint64_t bytes);
  // Fills the next bytes with zeros and advances.
  void zero(uint64_t bytes);
  // Fills the next ones from a copy and advances.
  void copy(std::span<const std::byte> from);

 private:
  std::span<const iovec> list_;
  size_t index_ = 0;
  uint64_t within_ = 0;  // bytes of list_[index_] already passed
  std::vector<iovec> pieces_;
};

}  // namespace ramet::image
