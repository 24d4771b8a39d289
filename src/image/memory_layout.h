// image/memory_layout.h - which 2 MiB blocks of guest RAM an image leaves out because they were zero, and the list of host
// mappings that follows from it: the monitor maps it, the daemon fills the files that it maps.
// Problem: a hole of a shared memory file costs two pages when written and one even when read, so zero parts must be anonymous
// memory; but every change between file and anonymous memory is a mapping, KVM locks them all when a VM is created, and a guest
// chooses where its zeros are. Idea: decide per 2 MiB, longest zero runs first, until the number of mappings reaches its limit;
// zero runs that do not fit are stored as data. The decision is made once, when the files are made, and travels with them.
// Not here: reading or mapping memory (vmm/memory/guest_ram.h), filling files (commit/memory_fill.h). Thread: a value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "image/manifest.h"

namespace ramet::image {

inline constexpr uint64_t kRamBlockBytes = 2ull << 20;  // zero runs are found at this granularity; RAM is a multiple of it
inline constexpr uint64_t kMaxMappings = 2048;

// A private mapping of a file is cut in segments that cannot merge, because fork(2) copies page tables per mapping.
constexpr uint64_t segment_bytes(uint64_t ram_bytes) { return ram_bytes > (16ull << 30) ? 64ull << 20 : 16ull << 20; }
constexpr uint64_t segment_count(uint64_t ram_bytes) {
  return (ram_bytes + segment_bytes(ram_bytes) - 1) / segment_bytes(ram_bytes);
}

// One host mapping of guest RAM.
struct RamPiece {
  uint64_t offset = 0;  // from the start of RAM, in host order (no hole)
  uint64_t length = 0;
  bool anonymous = false;  // else file number `file` (0 even, 1 odd) at the same offset
  uint32_t file = 0;
};

class ZeroMap {
 public:
  // All blocks hold data.   Requires: ram_bytes is a multiple of kRamBlockBytes.
  explicit ZeroMap(uint64_t ram_bytes);
  // Errors: kCorrupt (wrong length, or more mappings than the limit).
  static Result<ZeroMap> decode(uint64_t ram_bytes, std::string_view bytes);
  std::string encode() const;

  uint64_t ram_bytes() const { return ram_bytes_; }
  uint64_t blocks() const { return zero_.size(); }
  bool zero(uint64_t block) const { return zero_[block]; }
  void set_zero(uint64_t block, bool zero) { zero_[block] = zero; }

  // Makes the shortest zero runs data until mapping_count() <= mapping_limit().
  void limit_mappings();
  uint64_t mapping_count() const { return pieces().size(); }
  // Twice the number of segments, at most kMaxMappings.
  uint64_t mapping_limit() const;
  std::vector<RamPiece> pieces() const;

 private:
  uint64_t ram_bytes_;
  std::vector<bool> zero_;
};

// Of an image of memory: a block is zero when the chunks that it consists of are not there, and when there are not too many.
// Errors: kInvalid (another kind, or not whole blocks), those of the manifest's LoadPage.
Result<ZeroMap> zero_map_of(Manifest& memory);

}  // namespace ramet::image
