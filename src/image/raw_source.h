// image/raw_source.h - a raw image file as a read-only source: block n lies at n * 4096; past its end everything is zero.
// Thread: as BlockSource. Owner: whoever made it.
#pragma once

#include <algorithm>
#include <memory>

#include "image/source.h"

namespace ramet::image {

class RawSource final : public BlockSource {
 public:
  RawSource(std::unique_ptr<File> file, uint64_t blocks) : file_(std::move(file)), blocks_(blocks) {}
  uint64_t size_blocks() const override { return blocks_; }
  Result<bool> read(BlockRange range, std::span<const iovec> to, Wait wait) const override {
    if (!range_fits(range, blocks_)) return fail(ErrorKind::kInvalid, "block range is not on the disk");
    return file_->read(range.first * kBlockBytes, to, wait);
  }
  Content content_at(BlockRange range) const override {
    const File::Stretch stretch = file_->stretch_at(range.first * kBlockBytes, range.count * kBlockBytes);
    // A block that is hole in part counts as data.
    const uint64_t whole = stretch.bytes / kBlockBytes;
    if (stretch.hole && whole > 0) return {{range.first, whole}, true};
    return {{range.first, std::max<uint64_t>(whole, 1)}, false};
  }
  void append_descriptors(std::vector<int>& out) const override { file_->append_descriptors(out); }

 private:
  std::unique_ptr<File> file_;
  uint64_t blocks_;
};

}  // namespace ramet::image
