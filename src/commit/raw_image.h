// commit/raw_image.h - raw files into the store and out of it: import, export.
// Only what is in the file is read: holes are skipped, zeros are not stored. Not here: other formats (they come as raw), the
// catalogue. Thread: any; one call is one thread's.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "chunk/store.h"
#include "image/manifest.h"

namespace ramet::commit {

struct Progress {
  uint64_t done_bytes = 0, total_bytes = 0;  // of the image, holes included
};
using OnProgress = std::function<void(const Progress&)>;

// A manifest whose pages lie in the store as chunks of their own. The store must outlive it.
image::Manifest manifest_in(const chunk::Store& store, image::ManifestRoot root);
// Seals into the batch; what it wrote is there once the batch is committed.
Status seal_into(chunk::Batch& batch, image::Manifest& manifest);

// Reads the file, which must not change meanwhile, into the batch. The caller commits it, writes down the root, and only then
// drops the batch: until there is a root, nothing but the batch keeps a collection from taking the chunks. `parent`: an image
// that this one is probably a version of; may be null. A file that is no whole number of blocks is taken as if zeros followed.
// Errors: kInvalid (empty, too large), kNoSpace, kIo; the batch can only be dropped then.
Result<image::ManifestRoot> import_raw(int file, chunk::Batch& batch, image::Manifest* parent, const OnProgress& progress = {});

// Writes the image into a file that is empty; blocks of zeros become holes.
// Errors: kInvalid (the file has content), kCorrupt, kNotFound, kNoSpace, kIo; the file then holds a part.
Status export_raw(image::Manifest& manifest, const chunk::Store& store, int file, const OnProgress& progress = {});

}  // namespace ramet::commit
