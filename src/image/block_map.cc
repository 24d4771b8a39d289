#include "image/block_map.h"

#include <algorithm>
#include <new>

namespace ramet::image {

void BlockMap::FreePage::operator()(Page* p) const { ::operator delete(p, std::align_val_t(kBlockBytes)); }

std::unique_ptr<BlockMap::Page, BlockMap::FreePage> BlockMap::make_page(Slot fill) {
  // Page-aligned, so that a write to one chunk's page copies nothing else after a fork.
  std::unique_ptr<Page, FreePage> page(new (std::align_val_t(kBlockBytes)) Page);
  page->fill(fill);
  return page;
}

BlockMap::BlockMap(uint64_t blocks) : blocks_(blocks), chunks_((blocks + kChunkBlocks - 1) / kChunkBlocks) {
  counts_[0] = blocks;
}

BlockMap::Run BlockMap::run_at(BlockRange range) const {
  size_t chunk = range.first / kChunkBlocks;
  uint64_t at = range.first % kChunkBlocks;
  const Slot slot = chunks_[chunk].page ? (*chunks_[chunk].page)[at] : chunks_[chunk].uniform;
  uint64_t length = 0;
  for (; length < range.count; chunk++, at = 0) {
    const uint64_t limit = std::min(kChunkBlocks - at, range.count - length);
    const Chunk& c = chunks_[chunk];
    if (!c.page) {
      if (c.uniform != slot) break;
      length += limit;
      continue;
    }
    const auto begin = c.page->begin() + static_cast<ptrdiff_t>(at);
    const auto end = begin + static_cast<ptrdiff_t>(limit);
    const auto stop = std::find_if(begin, end, [slot](Slot s) { return s != slot; });
    length += static_cast<uint64_t>(stop - begin);
    if (stop != end) break;
  }
  return {{range.first, length}, slot};
}

void BlockMap::assign(const Run& run, Slot slot) {
  counts_[run.slot] -= run.range.count;
  counts_[slot] += run.range.count;
  uint64_t first = run.range.first;
  uint64_t left = run.range.count;
  while (left > 0) {
    const uint64_t at = first % kChunkBlocks;
    const uint64_t n = std::min(kChunkBlocks - at, left);
    assign_in_chunk(first / kChunkBlocks, at, n, slot);
    first += n;
    left -= n;
  }
}

void BlockMap::assign_in_chunk(size_t index, uint64_t first, uint64_t count, Slot slot) {
  Chunk& chunk = chunks_[index];
  const uint64_t chunk_blocks = std::min(kChunkBlocks, blocks_ - index * kChunkBlocks);
  if (first == 0 && count == chunk_blocks) {
    chunk.page.reset();
    chunk.uniform = slot;
    return;
  }
  if (!chunk.page) chunk.page = make_page(chunk.uniform);
  std::fill_n(chunk.page->begin() + static_cast<ptrdiff_t>(first), count, slot);
}

void BlockMap::rename(Slot from, Slot to) {
  if (from == to || counts_[from] == 0) return;
  for (Chunk& chunk : chunks_) {
    if (!chunk.page) {
      if (chunk.uniform == from) chunk.uniform = to;
      continue;
    }
    const Page& page = *chunk.page;
    if (std::find(page.begin(), page.end(), from) != page.end()) std::replace(chunk.page->begin(), chunk.page->end(), from, to);
  }
  counts_[to] += counts_[from];
  counts_[from] = 0;
}

}  // namespace ramet::image
