// image/manifest_format.h - bytes of a manifest (docs/formats/manifest.md): a root and pages of 256 digests. A page is named by
// its own digest, so images that differ little share nearly all pages. Pure: no I/O, no allocation before its limit was
// checked. Not here: computing digests, where pages lie. Thread: values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "image/block.h"

namespace ramet::image {

inline constexpr uint32_t kManifestVersion = 1;
inline constexpr uint32_t kPageChunks = 256;
inline constexpr size_t kPageBytes = kPageChunks * sizeof(Digest);
inline constexpr size_t kRootHeaderBytes = 64;

enum class ImageKind : uint32_t { kDisk = 1, kMemory = 2 };

// Of a chunk, by kind: 16 MiB of disk, 512 KiB of memory.
constexpr uint32_t chunk_blocks(ImageKind kind) { return kind == ImageKind::kDisk ? kChunkBlocks : 128; }

// The digest of bytes 0 stands for a chunk, or a page, of zeros: nothing has it.
inline constexpr Digest kZeros{};

using ManifestPage = std::array<Digest, kPageChunks>;
static_assert(sizeof(ManifestPage) == kPageBytes);

struct ManifestRoot {
  ImageKind kind = ImageKind::kDisk;
  uint64_t blocks = 0;        // size of the image
  std::vector<Digest> pages;  // as many as its chunks need
  friend bool operator==(const ManifestRoot&, const ManifestRoot&) = default;
};
// Requires: blocks <= kMaxDiskBlocks.
uint64_t chunks_of(ImageKind kind, uint64_t blocks);
uint64_t pages_of(ImageKind kind, uint64_t blocks);

// Requires: as many pages as pages_of() says.
std::string encode_manifest_root(const ManifestRoot& root);
// Errors: kCorrupt, kUnsupported (a later version).
Result<ManifestRoot> decode_manifest_root(std::span<const std::byte> bytes);

std::string encode_manifest_page(const ManifestPage& page);
// Requires: the caller has checked that the bytes have the page's digest.   Errors: kCorrupt (size).
Result<ManifestPage> decode_manifest_page(std::span<const std::byte> bytes);

}  // namespace ramet::image
