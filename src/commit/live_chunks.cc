#include "commit/live_chunks.h"

#include "commit/stored_manifest.h"

namespace ramet::commit {

Status visit_needed(const chunk::Store& store, const image::ManifestRoot& root,
                    const std::function<Status(Needed, const Digest&)>& visit) {
  for (const Digest& page : root.pages)
    if (page != image::kZeros) TRY(visit(Needed::kPage, page));
  image::Manifest manifest = manifest_in(store, root);
  for (uint64_t n = 0; n < manifest.chunks(); n++) {
    if (root.pages[n / image::kPageChunks] == image::kZeros) continue;
    TRY_ASSIGN(const Digest chunk, manifest.chunk(n));
    if (chunk != image::kZeros) TRY(visit(Needed::kChunk, chunk));
  }
  return {};
}

Status add_needed(const chunk::Store& store, const image::ManifestRoot& root, std::unordered_set<Digest, DigestHash>& needed) {
  return visit_needed(store, root, [&](Needed, const Digest& digest) -> Status {
    needed.insert(digest);
    return {};
  });
}

Status visit_roots(const Catalogue& catalogue,
                   const std::function<Status(const std::string& name, const image::ManifestRoot&)>& visit) {
  TRY_ASSIGN(const std::vector<std::string> names, catalogue.names());
  for (const std::string& name : names) {
    TRY_ASSIGN(const image::ManifestRoot root, catalogue.get(name));
    TRY(visit(name, root));
  }
  TRY_ASSIGN(const std::vector<std::string> unfinished, catalogue.unfinished_names());
  for (const std::string& name : unfinished) {
    TRY_ASSIGN(const Unfinished import, catalogue.unfinished(name));
    TRY(visit(name, import.root));
  }
  return {};
}

Status visit_roots(const SnapshotCatalogue& snapshots,
                   const std::function<Status(const std::string& id, const image::ManifestRoot&)>& visit) {
  TRY_ASSIGN(const std::vector<std::string> ids, snapshots.ids());
  for (const std::string& id : ids) {
    TRY_ASSIGN(const SnapshotRecord record, snapshots.get(id));
    for (const image::ManifestRoot* root : roots_of(record)) TRY(visit(id, *root));
  }
  return {};
}

Result<chunk::Store::LiveSet> live_chunks(const chunk::Store& store, std::span<const Catalogue> catalogues,
                                          const SnapshotCatalogue* snapshots) {
  chunk::Store::LiveSet live;
  const auto add = [&](const std::string&, const image::ManifestRoot& root) { return add_needed(store, root, live.chunks); };
  for (const Catalogue& catalogue : catalogues) TRY(visit_roots(catalogue, add));
  if (snapshots) TRY(visit_roots(*snapshots, add));
  return live;
}

}  // namespace ramet::commit
