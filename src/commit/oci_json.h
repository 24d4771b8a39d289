// commit/oci_json.h - the documents of an OCI image layout: which blobs an image consists of. Foreign bytes.
// Source: OCI image-spec v1.0, image-layout, index and manifest. Not here: where blobs lie, what is in them. Thread: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/result.h"

namespace ramet::commit {

inline constexpr size_t kMaxOciJsonBytes = 4u << 20, kMaxOciDescriptors = 1024;

struct OciDescriptor {
  enum class Kind { kManifest, kIndex, kLayer } kind;
  Digest digest;  // always SHA-256
  uint64_t bytes = 0;
  std::string tag;       // org.opencontainers.image.ref.name
  std::string platform;  // "linux/amd64"; empty: none said
};

// What an index lists, other things than images left out.   Errors: kCorrupt (no such document), kInvalid (a limit),
// kUnsupported (other digests).
Result<std::vector<OciDescriptor>> decode_oci_index(std::string_view json);
// The one meant: with this tag, or any if it is empty; for linux/amd64, where platforms are said.   Errors: kNotFound, kInvalid
// (several).
Result<OciDescriptor> choose_oci_image(const std::vector<OciDescriptor>& images, std::string_view tag);
// The layers, lowest first.   Errors: kCorrupt, kInvalid (a limit), kUnsupported (layers that are no tar, other digests).
Result<std::vector<OciDescriptor>> decode_oci_manifest(std::string_view json);

}  // namespace ramet::commit
