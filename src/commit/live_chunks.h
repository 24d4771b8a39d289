// commit/live_chunks.h - what a catalogue needs of a store: chunks and pages of manifests, of images, of unfinished imports and
// of snapshots.
// Thread: any; what is added meanwhile is missing.
#pragma once

#include <functional>
#include <span>
#include <unordered_set>

#include "chunk/store.h"
#include "commit/catalogue.h"
#include "commit/snapshot_catalogue.h"

namespace ramet::commit {

enum class Needed { kPage, kChunk };
// The chunks that a manifest names, and its pages; none of zeros.   Errors: those of loading a page, and of `visit`.
Status visit_needed(const chunk::Store& store, const image::ManifestRoot& root,
                    const std::function<Status(Needed, const Digest&)>& visit);
// The same, into a set.
Status add_needed(const chunk::Store& store, const image::ManifestRoot& root, std::unordered_set<Digest, DigestHash>& needed);

// Images first, then unfinished imports. One that cannot be read ends it: what it needs is not known, and nothing of it may be
// lost.   Errors: kCorrupt, kUnsupported, kIo, those of `visit`.
Status visit_roots(const Catalogue& catalogue,
                   const std::function<Status(const std::string& name, const image::ManifestRoot&)>& visit);

// The same of snapshots: the roots of each.
Status visit_roots(const SnapshotCatalogue& snapshots,
                   const std::function<Status(const std::string& id, const image::ManifestRoot&)>& visit);

// What all users of a store need, for Store::collect(). `snapshots` is null where there never were any.   Errors: as above.
Result<chunk::Store::LiveSet> live_chunks(const chunk::Store& store, std::span<const Catalogue> catalogues,
                                          const SnapshotCatalogue* snapshots);

}  // namespace ramet::commit
