// commit/raw_image.h - raw files into the store and out of it: import, export.
// Only what is in the file is read: holes are skipped, zeros are not stored. Not here: other formats (they come as raw), the
// catalogue. Thread: any; one call is one thread's.
#pragma once

#include "commit/progress.h"
#include "commit/stored_manifest.h"

namespace ramet::commit {

// Reads the file, which must not change meanwhile, into the batch. The caller commits it, writes down the root, and only then
// drops the batch: until there is a root, nothing but the batch keeps a collection from taking the chunks. `parent`: an image
// that this one is probably a version of; may be null. A file that is no whole number of blocks is taken as if zeros followed.
// Errors: kInvalid (empty, too large), kNoSpace, kIo; the batch can only be dropped then.
Result<image::ManifestRoot> import_raw(int file, chunk::Batch& batch, image::Manifest* parent, const OnProgress& progress = {});

// A part of that: the chunks from `first` on into `manifest`, until about so many bytes that are no holes were read. Answers
// the chunk to go on with; manifest.chunks(): all are there. The manifest is not sealed.
struct RawPart {
  int file = -1;
  uint64_t first_chunk = 0;
  uint64_t most_bytes = UINT64_MAX;
};
Result<uint64_t> import_raw_part(const RawPart& part, chunk::Batch& batch, image::Manifest& manifest, image::Manifest* parent,
                                 const OnProgress& progress = {});
// Of the right size, all zeros.   Errors: kInvalid (empty, too large), kIo.
Result<image::Manifest> empty_manifest_for(int file);

// Writes the image into a file that is empty; blocks of zeros become holes.
// Errors: kInvalid (the file has content), kCorrupt, kNotFound, kNoSpace, kIo; the file then holds a part.
Status export_raw(image::Manifest& manifest, const chunk::Store& store, int file, const OnProgress& progress = {});

}  // namespace ramet::commit
