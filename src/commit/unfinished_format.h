// commit/unfinished_format.h - the bytes of the record of an import that is not through (docs/formats/manifest.md): from what,
// how far, and the manifest so far. Pure. Thread: values.
#pragma once

#include <span>
#include <string>

#include "image/manifest_format.h"

namespace ramet::commit {

struct Unfinished {
  Digest source;            // of what says which bytes are imported, and how
  uint64_t next_chunk = 0;  // those before are stored, or zero
  image::ManifestRoot root;
  friend bool operator==(const Unfinished&, const Unfinished&) = default;
};

std::string encode_unfinished(const Unfinished& import);
// Errors: kCorrupt, kUnsupported (a later version).
Result<Unfinished> decode_unfinished(std::span<const std::byte> bytes);

}  // namespace ramet::commit
