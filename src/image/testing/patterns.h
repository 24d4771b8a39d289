// image/testing/patterns.h - blocks with recognisable content: block filled with the 64-bit words of (version). Thread:
// stateless.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "image/overlay_stack.h"
#include "image/source.h"
#include "image/testing/crash_file.h"

namespace ramet::image::testing {

// Version 0 is a block of zeros.
inline std::vector<uint64_t> pattern(uint64_t version, uint64_t blocks = 1) {
  return std::vector<uint64_t>(blocks * kBlockBytes / sizeof(uint64_t), version);
}

inline Status write_version(BlockTarget& target, BlockRange range, uint64_t version) {
  std::vector<uint64_t> words = pattern(version, range.count);
  const iovec v{words.data(), words.size() * sizeof(uint64_t)};
  return target.write(range, {&v, 1});
}

// nullopt: unreadable, or the block is torn.
inline std::optional<uint64_t> read_version(const BlockSource& source, uint64_t block) {
  std::vector<uint64_t> words(kBlockBytes / sizeof(uint64_t), ~0ull);
  const iovec v{words.data(), kBlockBytes};
  const Result<bool> done = source.read({block, 1}, {&v, 1}, Wait::kAllowed);
  if (!done || !*done) return std::nullopt;
  if (std::any_of(words.begin(), words.end(), [&](uint64_t w) { return w != words[0]; })) return std::nullopt;
  return words[0];
}

inline OverlayFiles writable_files(const CrashOverlay& o) {
  return {o.id, std::make_unique<CrashFile>(o.data, true), std::make_unique<CrashFile>(o.log, true)};
}
inline OverlayFiles frozen_files(const CrashOverlay& o) {
  return {o.id, std::make_unique<CrashFile>(o.data, false), std::make_unique<CrashFile>(o.log, false)};
}

// A base whose block n has version 1000000 + n, except every third, which is zero.
class PatternBase final : public BlockSource {
 public:
  explicit PatternBase(uint64_t blocks) : blocks_(blocks) {}
  static uint64_t version_of(uint64_t block) { return block % 3 == 0 ? 0 : 1000000 + block; }
  uint64_t size_blocks() const override { return blocks_; }
  Result<bool> read(BlockRange range, std::span<const iovec> to, Wait) const override {
    if (!range_fits(range, blocks_)) return fail(ErrorKind::kInvalid, "not on the disk");
    std::vector<uint64_t> words;
    for (uint64_t b = range.first; b < range.end(); b++)
      words.insert(words.end(), kBlockBytes / sizeof(uint64_t), version_of(b));
    const std::byte* from = reinterpret_cast<const std::byte*>(words.data());
    for (const iovec& v : to) {
      std::memcpy(v.iov_base, from, v.iov_len);
      from += v.iov_len;
    }
    return true;
  }

 private:
  uint64_t blocks_;
};

}  // namespace ramet::image::testing
