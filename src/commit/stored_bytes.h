// commit/stored_bytes.h - bytes that are neither disk nor memory (a vmstate) kept as an image of memory: zeros up to whole
// blocks. They share what they have in common with others like any image. Thread: any; one call is one thread's.
#pragma once

#include "commit/stored_manifest.h"

namespace ramet::commit {

// Errors: kInvalid (none), those of Batch::put.
Result<image::ManifestRoot> put_bytes(chunk::Batch& batch, std::span<const std::byte> bytes);
// Allocates `size`, which the caller has bounded.   Errors: kInvalid (not of that size), kNotFound, kCorrupt, kIo.
Result<std::vector<std::byte>> get_bytes(const chunk::Store& store, const image::ManifestRoot& root, uint64_t size);

}  // namespace ramet::commit
