#include "image/manifest.h"

#include <algorithm>

#include "base/file.h"

namespace ramet::image {

Result<Manifest> Manifest::empty(ImageKind kind, uint64_t blocks) {
  if (blocks == 0 || blocks > kMaxDiskBlocks)
    return fail(ErrorKind::kInvalid,
                "an image of " + std::to_string(blocks) + " blocks, the limits are 1 and " + std::to_string(kMaxDiskBlocks));
  return Manifest(ManifestRoot{kind, blocks, std::vector<Digest>(pages_of(kind, blocks))}, {});
}

Result<ManifestPage*> Manifest::page_with(uint64_t chunk) {
  if (chunk >= chunks())
    return fail(ErrorKind::kInvalid, "chunk " + std::to_string(chunk) + " of an image of " + std::to_string(chunks()));
  const uint64_t number = chunk / kPageChunks;
  const auto it = pages_.find(number);
  if (it != pages_.end()) return &it->second.digests;
  Page page;
  if (const Digest& name = root_.pages[number]; name != kZeros) {
    if (!load_) return fail(ErrorKind::kInternal, "a page of a manifest that has no way to load it");
    TRY_ASSIGN(const std::string bytes, load_(name));
    TRY_ASSIGN(page.digests, decode_manifest_page(as_bytes(bytes)));
    const auto end =
        page.digests.begin() + static_cast<std::ptrdiff_t>(std::min<uint64_t>(kPageChunks, chunks() - number * kPageChunks));
    if (std::any_of(end, page.digests.end(), [](const Digest& d) { return d != kZeros; }))
      return fail(ErrorKind::kCorrupt, "manifest: chunks behind the end of the image");
  }
  return &pages_.emplace(number, page).first->second.digests;
}

Result<Digest> Manifest::chunk(uint64_t number) {
  TRY_ASSIGN(const ManifestPage* const page, page_with(number));
  return (*page)[number % kPageChunks];
}

Status Manifest::set(uint64_t number, const Digest& digest) {
  TRY_ASSIGN(ManifestPage* const page, page_with(number));
  Digest& entry = (*page)[number % kPageChunks];
  if (entry == digest) return {};
  entry = digest;
  pages_.at(number / kPageChunks).changed = true;
  return {};
}

Status Manifest::seal(const KeepPage& keep) {
  for (auto& [number, page] : pages_) {
    if (!page.changed) continue;
    const bool zeros = std::ranges::all_of(page.digests, [](const Digest& d) { return d == kZeros; });
    Digest name = kZeros;
    if (!zeros) {
      TRY_ASSIGN(name, keep(encode_manifest_page(page.digests), root_.pages[number]));
    }
    root_.pages[number] = name;
    page.changed = false;
  }
  return {};
}

Status visit_differences(Manifest& a, Manifest& b, const std::function<void(uint64_t, const Digest&, const Digest&)>& visit) {
  if (a.root().kind != b.root().kind || a.root().blocks != b.root().blocks)
    return fail(ErrorKind::kInvalid, "images of different kind or size: " + std::to_string(a.root().blocks) + " and " +
                                         std::to_string(b.root().blocks) + " blocks");
  for (uint64_t page = 0; page < a.root().pages.size(); page++) {
    if (a.root().pages[page] == b.root().pages[page]) continue;
    const uint64_t end = std::min((page + 1) * kPageChunks, a.chunks());
    for (uint64_t chunk = page * kPageChunks; chunk < end; chunk++) {
      TRY_ASSIGN(const Digest in_a, a.chunk(chunk));
      TRY_ASSIGN(const Digest in_b, b.chunk(chunk));
      if (in_a != in_b) visit(chunk, in_a, in_b);
    }
  }
  return {};
}

}  // namespace ramet::image
