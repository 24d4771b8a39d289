// image/merge.h - offline work on overlays, done by the daemon beside running machines: sealing a frozen overlay, and merging a run of
// neighbouring frozen overlays into one. Inputs are only read. Not here: which ones to merge, files' names, reference counts.
// Thread: stateless; each call owns its files.
#pragma once

#include <vector>

#include "image/overlay_stack.h"

namespace ramet::image {

// Makes a frozen overlay durable and says so in its log. Needs writers; the caller takes care that nobody else has one.
// Errors: kCorrupt, kNoSpace, kIo.
Status seal_overlay(OverlayFiles& overlay, uint64_t size_blocks);

struct MergeReport {
  uint64_t data_blocks = 0;
  uint64_t zero_blocks = 0;
};
// Writes the union of `frozen` (oldest first, newer ones win) into the empty `out`, durable and sealed. Blocks that hold only
// zeros become zero records.   Errors: kCorrupt, kNoSpace, kIo; `out` is then to be thrown away.
Result<MergeReport> merge_overlays(std::vector<OverlayFiles> frozen, uint64_t size_blocks, OverlayFiles& out);

// Copies a whole disk into a new raw file; runs of zeros become holes.   Errors: kNoSpace, kIo.
Status export_raw(const BlockSource& source, File& out);

}  // namespace ramet::image
