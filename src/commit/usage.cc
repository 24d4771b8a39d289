#include "commit/usage.h"

#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "commit/live_chunks.h"
#include "image/block.h"

namespace ramet::commit {
namespace {

// Who needs a block: 0 nobody, then the image's number, or several.
using Owner = uint32_t;
constexpr Owner kNobody = 0, kSeveral = UINT32_MAX;
using Owners = std::array<Owner, chunk::kFrameBlocks>;

class Count {
 public:
  explicit Count(const chunk::Store& store) : store_(store) {}

  Status add_catalogue(const Catalogue& catalogue) {
    TRY_ASSIGN(const std::vector<std::string> names, catalogue.names());
    TRY_ASSIGN(const std::vector<std::string> unfinished, catalogue.unfinished_names());
    usage_.images += names.size();
    usage_.unfinished += unfinished.size();
    return visit_roots(catalogue, [this](const std::string&, const image::ManifestRoot& root) {
      image_++;
      return add_image(root);
    });
  }

  // Disk, memory and vmstate of a snapshot are one user of a block.
  Status add_snapshots(const SnapshotCatalogue& snapshots) {
    TRY_ASSIGN(const std::vector<std::string> ids, snapshots.ids());
    usage_.snapshots += ids.size();
    std::string last;
    return visit_roots(snapshots, [&](const std::string& id, const image::ManifestRoot& root) {
      if (id != std::exchange(last, id)) image_++;
      return add_image(root);
    });
  }

  Result<Usage> finish() {
    TRY(store_.index().visit_frames([this](const chunk::FramePlace& place) { weigh(place.entry); }));
    TRY(store_.index().visit_chunks([this](const chunk::Index::Chunk& chunk) {
      if (!live_.contains(chunk.digest)) usage_.dead_stored_bytes += sizeof(Digest) + encode_recipe(chunk.recipe).size();
    }));
    TRY_ASSIGN(const chunk::Index::Totals totals, store_.totals());
    usage_.stored_bytes = totals.pack_bytes;
    return usage_;
  }

 private:
  Status add_image(const image::ManifestRoot& root) {
    return visit_needed(store_, root, [this](Needed what, const Digest& digest) -> Status {
      TRY_ASSIGN(const chunk::Recipe recipe, store_.index().recipe(digest));
      live_.insert(digest);
      for (const chunk::Extent& e : recipe.extents)
        if (e.frame) mark(e, what);
      return {};
    });
  }

  void mark(const chunk::Extent& e, Needed what) {
    if (what == Needed::kChunk) usage_.logical_bytes += e.blocks * image::kBlockBytes;
    Owners& owners = owners_[*e.frame];
    for (uint32_t b = e.first; b < e.first + e.blocks; b++)
      owners[b] = owners[b] == kNobody || owners[b] == image_ ? image_ : kSeveral;
  }

  void weigh(const chunk::FrameEntry& frame) {
    const auto it = owners_.find(frame.id);
    uint64_t dead = 0;
    for (uint32_t b = 0; b < frame.blocks; b++) {
      const Owner owner = it == owners_.end() ? kNobody : it->second[b];
      dead += owner == kNobody;
      (owner == kNobody    ? usage_.dead_bytes
       : owner == kSeveral ? usage_.shared_bytes
                           : usage_.unique_bytes) += image::kBlockBytes;
    }
    usage_.dead_stored_bytes += frame.stored_bytes * dead / frame.blocks;
  }

  const chunk::Store& store_;
  Usage usage_;
  Owner image_ = kNobody;
  std::unordered_map<chunk::FrameId, Owners> owners_;
  std::unordered_set<Digest, DigestHash> live_;
};

}  // namespace

Result<Usage> usage_of(const chunk::Store& store, std::span<const Catalogue> catalogues, const SnapshotCatalogue* snapshots) {
  Count count(store);
  for (const Catalogue& catalogue : catalogues) TRY(count.add_catalogue(catalogue));
  if (snapshots) TRY(count.add_snapshots(*snapshots));
  return count.finish();
}

}  // namespace ramet::commit
