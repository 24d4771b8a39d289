// image/merge.h - offline work on overlays, done by the daemon beside running machines: sealing a frozen overlay, recovery
// after a power failure, and merging neighbouring frozen overlays into one. Inputs are only read. Not here: which ones to
// merge, files' names, reference counts. Thread: stateless; each call owns its files.
#pragma once

#include <vector>

#include "image/overlay_stack.h"

namespace ramet::image {

// Makes a frozen overlay durable and says so in its log. Needs writers; the caller takes care that nobody else has one.
// Errors: kCorrupt, kNoSpace, kIo.
Status seal_overlay(OverlayFiles& overlay, uint64_t size_blocks);

// After the host lost power, before anything else: what a freeze had not made durable is cut off each overlay, unless another
// one proves that it was made durable later; then it is sealed. From then on every reader agrees. `overlays` are all of a
// family, in any order, with writers: the proof for a shared frozen overlay may lie in the log of any branch.   Errors:
// kCorrupt, kNoSpace, kIo.
Status recover_overlays(std::vector<OverlayFiles>& overlays, uint64_t size_blocks);

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
