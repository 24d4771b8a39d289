#include "image/manifest_format.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/endian.h"

namespace ramet::image {
namespace {

struct RawRoot {
  char magic[8];
  le32 version;
  le32 header_bytes;
  le32 kind;
  le32 chunk_blocks;
  le64 blocks;
  le64 pages;
  std::byte reserved[16];
  le32 pages_crc;  // CRC-32C of the digests behind the header
  le32 crc;        // CRC-32C of all before
};
static_assert(sizeof(RawRoot) == kRootHeaderBytes);

constexpr char kMagic[8] = {'R', 'M', 'T', 'M', 'A', 'N', 'I', 'F'};

tl::unexpected<Error> corrupt(const std::string& what) { return fail(ErrorKind::kCorrupt, "manifest: " + what); }

Result<RawRoot> decode_header(std::span<const std::byte> bytes) {
  RawRoot raw;
  if (bytes.size() < sizeof raw) return corrupt(std::to_string(bytes.size()) + " bytes only");
  std::memcpy(&raw, bytes.data(), sizeof raw);
  if (std::memcmp(raw.magic, kMagic, sizeof kMagic) != 0) return corrupt("does not begin as one");
  if (raw.crc != crc32c(&raw, offsetof(RawRoot, crc))) return corrupt("wrong checksum of the header");
  if (raw.version != kManifestVersion)
    return fail(ErrorKind::kUnsupported, "manifest of version " + std::to_string(raw.version) + ", this program reads " +
                                             std::to_string(kManifestVersion));
  if (raw.header_bytes != sizeof raw || std::ranges::any_of(raw.reserved, [](std::byte b) { return b != std::byte{0}; }))
    return corrupt("a header of another shape");
  return raw;
}

}  // namespace

uint64_t chunks_of(ImageKind kind, uint64_t blocks) { return (blocks + chunk_blocks(kind) - 1) / chunk_blocks(kind); }
uint64_t pages_of(ImageKind kind, uint64_t blocks) { return (chunks_of(kind, blocks) + kPageChunks - 1) / kPageChunks; }

std::string encode_manifest_root(const ManifestRoot& root) {
  RawRoot raw{};
  std::memcpy(raw.magic, kMagic, sizeof kMagic);
  raw.version = kManifestVersion;
  raw.header_bytes = static_cast<uint32_t>(sizeof raw);
  raw.kind = static_cast<uint32_t>(root.kind);
  raw.chunk_blocks = chunk_blocks(root.kind);
  raw.blocks = root.blocks;
  raw.pages = root.pages.size();
  raw.pages_crc = crc32c(root.pages.data(), root.pages.size() * sizeof(Digest));
  raw.crc = crc32c(&raw, offsetof(RawRoot, crc));
  std::string out(reinterpret_cast<const char*>(&raw), sizeof raw);
  return out.append(reinterpret_cast<const char*>(root.pages.data()), root.pages.size() * sizeof(Digest));
}

Result<ManifestRoot> decode_manifest_root(std::span<const std::byte> bytes) {
  TRY_ASSIGN(const RawRoot raw, decode_header(bytes));
  ManifestRoot root;
  if (raw.kind != static_cast<uint32_t>(ImageKind::kDisk) && raw.kind != static_cast<uint32_t>(ImageKind::kMemory))
    return corrupt("an image of kind " + std::to_string(raw.kind));
  root.kind = static_cast<ImageKind>(static_cast<uint32_t>(raw.kind));
  root.blocks = raw.blocks;
  if (raw.chunk_blocks != chunk_blocks(root.kind)) return corrupt("chunks of " + std::to_string(raw.chunk_blocks) + " blocks");
  if (root.blocks > kMaxDiskBlocks)
    return corrupt(std::to_string(root.blocks) + " blocks, the limit is " + std::to_string(kMaxDiskBlocks));
  const std::span<const std::byte> pages = bytes.subspan(sizeof raw);
  if (raw.pages != pages_of(root.kind, root.blocks) || pages.size() != raw.pages * sizeof(Digest))
    return corrupt(std::to_string(pages.size()) + " bytes for the pages of " + std::to_string(root.blocks) + " blocks");
  if (raw.pages_crc != crc32c(pages.data(), pages.size())) return corrupt("wrong checksum of the pages' names");
  root.pages.resize(raw.pages);
  if (!pages.empty()) std::memcpy(root.pages.data(), pages.data(), pages.size());
  return root;
}

std::string encode_manifest_page(const ManifestPage& page) { return {reinterpret_cast<const char*>(page.data()), sizeof page}; }

Result<ManifestPage> decode_manifest_page(std::span<const std::byte> bytes) {
  ManifestPage page;
  if (bytes.size() != sizeof page)
    return corrupt("a page of " + std::to_string(bytes.size()) + " bytes, not " + std::to_string(sizeof page));
  std::memcpy(&page, bytes.data(), sizeof page);
  return page;
}

}  // namespace ramet::image
