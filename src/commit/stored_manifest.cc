#include "commit/stored_manifest.h"

#include <algorithm>

#include "base/file.h"

namespace ramet::commit {

image::Manifest manifest_in(const chunk::Store& store, image::ManifestRoot root) {
  return image::Manifest::of(std::move(root), [&store](const Digest& page) -> Result<std::string> {
    TRY_ASSIGN(const std::vector<std::byte> bytes, store.get(page));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
}

Status check_chunk_bytes(const image::ManifestRoot& root, uint64_t number, uint64_t bytes) {
  const uint64_t most = image::chunk_blocks(root.kind);
  const uint64_t expected = std::min(most, root.blocks - number * most) * image::kBlockBytes;
  if (bytes == expected) return {};
  return fail(ErrorKind::kCorrupt, "chunk " + std::to_string(number) + " of the image has " + std::to_string(bytes) +
                                       " bytes, not " + std::to_string(expected));
}

Status seal_into(chunk::Batch& batch, image::Manifest& manifest) {
  return manifest.seal([&](const std::string& page, const Digest& before) { return put_chunk(batch, as_bytes(page), before); });
}

Result<Digest> put_chunk(chunk::Batch& batch, std::span<const std::byte> plain, const Digest& before) {
  TRY_ASSIGN(const std::optional<Digest> name,
             batch.put(plain, before == image::kZeros ? std::nullopt : std::optional(before)));
  return name.value_or(image::kZeros);
}

}  // namespace ramet::commit
