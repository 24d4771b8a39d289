// commit/usage.h - how much of a store is whose: counted over all images and snapshots, block by block. Thread: any; takes a
// while.
#pragma once

#include <span>

#include "chunk/store.h"
#include "commit/catalogue.h"
#include "commit/snapshot_catalogue.h"

namespace ramet::commit {

struct Usage {
  uint64_t images = 0, unfinished = 0, snapshots = 0;
  // As these have them, blocks of zeros left out.
  uint64_t logical_bytes = 0;
  // Blocks that the store keeps, uncompressed: needed by one image or snapshot, by several, by none. Pages of manifests count
  // too.
  uint64_t unique_bytes = 0, shared_bytes = 0, dead_bytes = 0;
  // On the disk: packs, and what of them no image needs (the share of a frame that its blocks of nobody have, and records).
  uint64_t stored_bytes = 0, dead_stored_bytes = 0;
};

// `snapshots` is null where there never were any.   Errors: those of visit_roots(), kNotFound (a chunk).
Result<Usage> usage_of(const chunk::Store& store, std::span<const Catalogue> catalogues, const SnapshotCatalogue* snapshots);

}  // namespace ramet::commit
