// commit/stored_manifest.h - manifests whose pages, and whose chunks, lie in a store.
// Not here: where roots are kept (catalogue.h). Thread: any; one call is one thread's.
#pragma once

#include <span>

#include "base/result.h"
#include "chunk/store.h"
#include "image/manifest.h"

namespace ramet::commit {

// Pages are loaded from the store, which must outlive it.
image::Manifest manifest_in(const chunk::Store& store, image::ManifestRoot root);
// What a store has of chunk `number` is as long as the image says.   Errors: kCorrupt.
Status check_chunk_bytes(const image::ManifestRoot& root, uint64_t number, uint64_t bytes);
// Seals into the batch; what it wrote is there once the batch is committed.
Status seal_into(chunk::Batch& batch, image::Manifest& manifest);

// Puts a chunk, and answers what a manifest calls it: kZeros for zeros. `before`: what was in its place, or kZeros.
Result<Digest> put_chunk(chunk::Batch& batch, std::span<const std::byte> plain, const Digest& before);

}  // namespace ramet::commit
