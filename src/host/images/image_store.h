// host/images/image_store.h - the images of one dedup domain: a chunk store, a cache of hot chunks, and names, in one
// directory.
//
//   DIRECTORY/packs, index.db     the chunks (docs/formats/pack.md)
//   DIRECTORY/images              images that users named, one file each (docs/formats/manifest.md)
//   DIRECTORY/templates           disks of templates, named by the SHA-256 of the disk: users cannot take these names
//   DIRECTORY/snapshots           records of snapshots (docs/formats/snapshot.md)
//   DIRECTORY/cache               hot chunks as raw files
//
// `ramet-store --store DIRECTORY` understands the same directory: to look at it also while a daemon has it open.
// A domain is whoever may share bytes: a tenant, or the public. Each is an ImageStore of its own, so nothing here needs a key
// for it. A tenant's may stand before the public one: its chunks may be named by the tenant's manifests, and the disks of its
// templates be used. What neither has is not found, whoever else has it. All stores before a public one must be open when that
// one collects: it asks them what they need.
//
// An image is there when it has a name; what an import that failed or was killed left is collected. Not here: reading blocks
// (disk_reader.h), which template or machine needs which disk (template_store.h, host_impl.h).
// Thread: every method from many threads. A resource; outlives every OpenImage.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "chunk/chunk_cache.h"
#include "chunk/counted_storage.h"
#include "chunk/store.h"
#include "commit/catalogue.h"
#include "commit/raw_image.h"
#include "commit/snapshot_catalogue.h"
#include "commit/stored_manifest.h"
#include "host/images/fetcher.h"
#include "host/images/open_image.h"
#include "host/images/remote_tier.h"
#include "image/overlay_stack.h"

namespace ramet::host {

class ImageStore;

struct ImageStoreOptions {
  std::string directory;
  uint64_t cache_bytes = 0;
  ImageStore* common = nullptr;  // the public one; stands before none itself, outlives this one
  // Whether the disk has room for so many bytes more.   Errors: kNoSpace.
  std::function<Status(uint64_t bytes)> admit = [](uint64_t) { return Status(); };
  // What stands between the store and the files of its packs: a remote tier, faults in tests.
  std::function<std::unique_ptr<chunk::PackStorage>(std::unique_ptr<chunk::PackStorage>)> behind;
  std::optional<RemoteTierOptions> remote;
  // Steps at which a test may kill the daemon.
  std::function<void(std::string_view step)> reached = [](std::string_view) {};
};

class ImageStore {
 public:
  // Errors: kConflict (another process has it open), kInvalid (the remote place is another domain's), those of Store, Catalogue
  // and ChunkCache.
  static Result<std::unique_ptr<ImageStore>> open(ImageStoreOptions options);
  ~ImageStore();

  // ---- names ----
  // An image under a new name; durable when it returns. The batch still holds its chunks.   Errors: as Catalogue::add.
  Result<std::shared_ptr<OpenImage>> add(const ImageId& id, chunk::Batch& batch, const image::ManifestRoot& root);
  // Also the disk of a public template.   Errors: kInvalid (name), kNotFound, kCorrupt, kIo.
  Result<std::shared_ptr<OpenImage>> use(const ImageId& id);
  // A name that can be given.   Errors: kInvalid, kExists.
  Status check_new(const ImageId& id);
  // Whoever uses it goes on.   Errors: kInvalid (name), kNotFound, kIo.
  Status remove(const ImageId& id);
  // Sorted.   Errors: kIo.
  Result<std::vector<std::string>> names(ImageSpace space) const;
  // Removes the disks of templates that are not among these and that nobody uses.   Errors: kIo.
  Status keep_templates(const std::set<std::string>& wanted);

  // ---- snapshots ----
  // Records of this domain's snapshots, under the same lock as names. What they name is kept. Errors: as SnapshotCatalogue.
  class Snapshots {
   public:
    // Durable when it returns. The batch still holds what the record names.
    Status add(std::string_view id, const chunk::Batch& batch, const commit::SnapshotRecord& record);
    Result<commit::SnapshotRecord> get(std::string_view id) const;
    Status replace_details(std::string_view id, std::string details);
    Status remove(std::string_view id);
    Result<std::vector<std::string>> ids() const;

   private:
    friend class ImageStore;
    explicit Snapshots(ImageStore& store) : store_(store) {}
    ImageStore& store_;
  };
  Snapshots snapshots() { return Snapshots(*this); }

  // ---- content ----
  // A raw file, which must not change meanwhile. `parent`: an image that it is probably a version of, or null.
  // Errors: kExists, kInvalid (name, size), kNoSpace, kIo; the store is as before then.
  Result<std::shared_ptr<OpenImage>> import_raw(const ImageId& id, int file, OpenImage* parent,
                                                const commit::OnProgress& progress = {});
  // The disk that overlays over `base` make together, oldest first; nobody writes to them.
  // Errors: as import_raw, and kCorrupt; the store is as before then.
  Result<std::shared_ptr<OpenImage>> commit_disk(const ImageId& id, const OpenImage& base,
                                                 std::vector<image::OverlayFiles> overlays);
  // Into an empty file.   Errors: as commit::export_raw.
  Status export_raw(OpenImage& image, int file, const commit::OnProgress& progress = {}) const;
  // The image's chunks into the cache, as far as it has room without giving up others: it will be read soon.
  // Requires: `file` is what the image was made from, and has not changed since.
  void warm(OpenImage& image, int file);

  // ---- upkeep; slow ----
  // Forgets chunks that no image needs.   Errors: as Store::collect, and of images that cannot be read: nothing is changed
  // then.
  Result<chunk::Store::Collected> collect();
  // Something was removed since the last collection.
  bool wants_collection();

  chunk::Store& chunks() { return *store_; }
  const chunk::Store& chunks() const { return *store_; }
  chunk::ChunkCache& cache() { return *cache_; }
  Fetcher& fetcher() { return fetcher_; }
  // Null: all packs are here.
  const RemoteTier* remote() const { return remote_.get(); }
  // Whether the pack has a copy here, not in the remote tier only. Without such a tier one that is lost belongs here, too.
  bool is_here(const chunk::PackId& id) const { return !tiered_ || tiered_->is_local(id); }
  // Of packs, since this was opened.
  struct PackReads {
    uint64_t local_bytes = 0, remote_bytes = 0;
  };
  PackReads pack_reads() const;
  ReadCounters& counters() { return counters_; }
  const ImageStoreOptions& options() const { return options_; }

 private:
  // The packs as the store has them; both are parts of one thing.
  struct Packs {
    std::unique_ptr<chunk::PackStorage> storage;
    const chunk::CountedStorage* counted = nullptr;  // without a remote tier
    chunk::TieredStorage* tiered = nullptr;          // with one
  };
  static Result<Packs> open_packs(const ImageStoreOptions& options);
  ImageStore(ImageStoreOptions options, const Packs& packs, std::unique_ptr<chunk::Store> store,
             std::unique_ptr<chunk::ChunkCache> cache, commit::Catalogue images, commit::Catalogue templates,
             commit::SnapshotCatalogue snapshots);
  commit::Catalogue& catalogue(ImageSpace space) { return space == ImageSpace::kUser ? images_ : templates_; }
  const commit::Catalogue& catalogue(ImageSpace space) const { return space == ImageSpace::kUser ? images_ : templates_; }
  Status check_remote_is_free(const RemoteTierOptions& wanted);
  Result<image::ManifestRoot> root_of(const ImageId& id) const;
  Result<std::vector<image::ManifestRoot>> roots();
  // A new image of what `fill` puts into the batch; `what` names its steps.
  Result<std::shared_ptr<OpenImage>> store_image(const ImageId& id, const std::string& what,
                                                 const std::function<Result<image::ManifestRoot>(chunk::Batch&)>& fill);
  Status add_needed(chunk::Store::LiveSet& live);
  Status add_needed_by_tenants(chunk::Store::LiveSet& live);
  void want_collection();

  struct InUse {
    ImageId id;
    std::weak_ptr<OpenImage> image;  // its users own it
    bool named = true;
  };
  // With names_mutex_ held:
  std::shared_ptr<OpenImage> find_open(const ImageId& id);
  std::shared_ptr<OpenImage> remember(const ImageId& id, const image::ManifestRoot& root);
  Status forget(const ImageId& id);
  void drop_unused();

  const ImageStoreOptions options_;
  // Owned by store_, of which they are the packs; one of them is null.
  const chunk::CountedStorage* const counted_;
  chunk::TieredStorage* const tiered_;
  const std::unique_ptr<chunk::Store> store_;
  const std::unique_ptr<RemoteTier> remote_;
  const std::unique_ptr<chunk::ChunkCache> cache_;
  ReadCounters counters_;
  Fetcher fetcher_;
  // Held over the catalogues' small files: a name, and who uses its image, change together.
  mutable std::mutex names_mutex_;
  commit::Catalogue images_, templates_;  // guarded by names_mutex_
  commit::SnapshotCatalogue snapshots_;   // guarded by names_mutex_
  std::list<InUse> in_use_;               // guarded by names_mutex_
  bool wants_collection_ = true;          // guarded by names_mutex_; what a crash left is found by the first one
  // Held while they are asked what they need: none goes away meanwhile.
  std::mutex tenants_mutex_;
  std::set<ImageStore*> tenants_;  // guarded by tenants_mutex_: that stand before this one
};

}  // namespace ramet::host
