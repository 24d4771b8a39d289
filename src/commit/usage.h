// commit/usage.h - how much of a store is whose: counted over all images, block by block. Thread: any; takes a while.
#pragma once

#include <span>

#include "chunk/store.h"
#include "commit/catalogue.h"

namespace ramet::commit {

struct Usage {
  uint64_t images = 0, unfinished = 0;
  // As the images have them, blocks of zeros left out.
  uint64_t logical_bytes = 0;
  // Blocks that the store keeps, uncompressed: needed by one image, by several, by none. Pages of manifests count too.
  uint64_t unique_bytes = 0, shared_bytes = 0, dead_bytes = 0;
  // On the disk: packs, and what of them no image needs (the share of a frame that its blocks of nobody have, and records).
  uint64_t stored_bytes = 0, dead_stored_bytes = 0;
};

// Errors: those of visit_roots(), kNotFound (a chunk).
Result<Usage> usage_of(const chunk::Store& store, std::span<const Catalogue> catalogues);

}  // namespace ramet::commit
