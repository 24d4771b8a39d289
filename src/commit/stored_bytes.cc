#include "commit/stored_bytes.h"

#include <algorithm>

namespace ramet::commit {
namespace {

using image::ImageKind;
using image::kBlockBytes;

constexpr uint64_t kChunk = image::chunk_blocks(ImageKind::kMemory) * kBlockBytes;

uint64_t blocks_for(uint64_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes; }

}  // namespace

Result<image::ManifestRoot> put_bytes(chunk::Batch& batch, std::span<const std::byte> bytes) {
  TRY_ASSIGN(image::Manifest manifest, image::Manifest::empty(ImageKind::kMemory, blocks_for(bytes.size())));
  for (uint64_t number = 0; number < manifest.chunks(); number++) {
    const std::span<const std::byte> part =
        bytes.subspan(number * kChunk).first(std::min(kChunk, bytes.size() - number * kChunk));
    std::vector<std::byte> chunk(part.begin(), part.end());
    chunk.resize(blocks_for(part.size()) * kBlockBytes);
    TRY_ASSIGN(const Digest name, put_chunk(batch, chunk, image::kZeros));
    TRY(manifest.set(number, name));
  }
  TRY(seal_into(batch, manifest));
  return manifest.root();
}

Result<std::vector<std::byte>> get_bytes(const chunk::Store& store, const image::ManifestRoot& root, uint64_t size) {
  if (root.kind != ImageKind::kMemory || root.blocks != blocks_for(size))
    return fail(ErrorKind::kInvalid,
                std::to_string(size) + " bytes are not kept in " + std::to_string(root.blocks) + " blocks");
  std::vector<std::byte> out(root.blocks * kBlockBytes);
  image::Manifest manifest = manifest_in(store, root);
  for (uint64_t number = 0; number < manifest.chunks(); number++) {
    TRY_ASSIGN(const Digest name, manifest.chunk(number));
    if (name == image::kZeros) continue;
    const std::span<std::byte> chunk = std::span(out).subspan(number * kChunk);
    const std::span<std::byte> room = chunk.first(std::min<uint64_t>(kChunk, chunk.size()));
    TRY(store.get(name, [&](size_t bytes) -> Result<std::span<std::byte>> {
      if (bytes == room.size()) return room;
      return fail(ErrorKind::kCorrupt, "a chunk of kept bytes has " + std::to_string(bytes) + " bytes");
    }));
  }
  out.resize(size);
  return out;
}

}  // namespace ramet::commit
