// image/block_map.h - where each block of a disk lies: block -> slot, a small number that names a layer. One byte per block,
// in pages of 4096 that exist only for chunks (16 MiB) whose blocks do not all have the same slot; so an untouched disk costs
// 16 bytes per chunk, and after fork(2) a branch copies one page per chunk that it writes to. Rejected: a tree of extents
// (random 4 KiB writes make it larger than this, and it allocates on the write path). Not here: what a slot is
// (overlay_stack.h), pending records. Thread: the owner's mutex.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "image/block.h"

namespace ramet::image {

using Slot = uint8_t;

class BlockMap {
 public:
  struct Run {
    BlockRange range;
    Slot slot;
  };

  // All blocks in slot 0.
  explicit BlockMap(uint64_t blocks);

  uint64_t size_blocks() const { return blocks_; }
  // The run of equal slots that begins at range.first, cut to the range.   Requires: the range is on the disk, not empty.
  Run run_at(BlockRange range) const;
  // How many blocks have that slot.
  uint64_t count(Slot slot) const { return counts_[slot]; }

  // Calls changed(run) for every run whose slot differs, then sets it.   Requires: the range is on the disk.
  template <class F>
  void set(BlockRange range, Slot slot, F changed) {
    while (range.count > 0) {
      const Run run = run_at(range);
      if (run.slot != slot) {
        changed(run);
        assign(run, slot);
      }
      range = {range.first + run.range.count, range.count - run.range.count};
    }
  }
  void set(BlockRange range, Slot slot) {
    set(range, slot, [](const Run&) {});
  }

  // Every block of slot `from` becomes `to`.
  void rename(Slot from, Slot to);

 private:
  using Page = std::array<Slot, kChunkBlocks>;
  struct FreePage {
    void operator()(Page* p) const;
  };
  struct Chunk {
    std::unique_ptr<Page, FreePage> page;  // null: all blocks have `uniform`
    Slot uniform = 0;
  };
  void assign(const Run& run, Slot slot);
  void assign_in_chunk(size_t chunk, uint64_t first, uint64_t count, Slot slot);
  static std::unique_ptr<Page, FreePage> make_page(Slot fill);

  uint64_t blocks_;
  std::vector<Chunk> chunks_;
  std::array<uint64_t, 256> counts_{};
};

}  // namespace ramet::image
