// commit/memory_commit.h - what a machine changed of its memory goes into the store: an image as of now.
//
// Guests write scattered pages, and what they wrote is often what was there before (up to half of it) or zero. So each page
// that the machine has to itself is compared with the image's, and only a chunk of 512 KiB in which one differs is put, with
// the chunk before as its parent: bytes stored follow changed pages, bytes hashed follow touched chunks. Each of these is
// hashed once: the image's blocks when their chunk is checked by its name, and of the new one the pages that changed. Not here:
// standing still, what the pages are (memory_view.h), the record of a snapshot. Thread: any; one call is one thread's, and has
// up to three threads of its own that read, compare and hash, and are joined before it returns.
#pragma once

#include "commit/memory_view.h"
#include "commit/progress.h"
#include "commit/stored_manifest.h"

namespace ramet::commit {

struct MemoryCommit {
  uint64_t touched_chunks = 0;  // with own pages
  uint64_t changed_chunks = 0;  // of these, other than before
  uint64_t own_pages = 0;       // compared
  uint64_t changed_pages = 0;   // of these, other than before
};

// `manifest` is that of the image below (empty, if there is none) and that of the whole memory afterwards. What it names is
// in `store`, as is the batch; a few chunks are in memory at a time. The caller commits the batch, writes down the root, and
// only then drops the batch.
// Errors: kInvalid (another kind or size), those of the view, kCorrupt, kNotFound, kNoSpace, kIo; the batch can only be dropped
// then, and the manifest too.
Result<MemoryCommit> commit_memory(const MemoryView& memory, image::Manifest& manifest, const chunk::Store& store,
                                   chunk::Batch& batch, const OnProgress& progress = {});

}  // namespace ramet::commit
