// commit/disk_commit.h - what the overlays of a disk changed goes into the store: an image as of now.
// Only chunks that an overlay touched are read. One that says again what the base said, or zeros, costs nothing; of the others
// the store keeps the blocks that it has not. Not here: freezing overlays, dropping them afterwards, the catalogue.
// Thread: any; one call is one thread's.
#pragma once

#include "commit/progress.h"
#include "commit/stored_manifest.h"
#include "image/overlay_stack.h"

namespace ramet::commit {

struct DiskCommit {
  uint64_t touched_chunks = 0;  // read
  uint64_t changed_chunks = 0;  // of these, other than before
};

// `manifest` is that of the disk's base (empty, if it has none) and that of the whole disk afterwards. The caller commits the
// batch, writes down the root, and only then drops the batch.   Requires: nobody writes to the disk meanwhile.
// Errors: kInvalid (another size), kCorrupt, kNoSpace, kIo; the batch can only be dropped then, and the manifest too.
Result<DiskCommit> commit_disk(const image::OverlayStack& disk, image::Manifest& manifest, chunk::Batch& batch,
                               const OnProgress& progress = {});

}  // namespace ramet::commit
