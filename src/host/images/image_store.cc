#include "host/images/image_store.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/half_replaced.h"
#include "base/log.h"
#include "base/place.h"
#include "chunk/directory_storage.h"
#include "commit/disk_commit.h"
#include "commit/live_chunks.h"
#include "commit/stored_source.h"

namespace ramet::host {
namespace {

Result<uint64_t> allocated_bytes(int file) {
  struct stat st;
  if (::fstat(file, &st) < 0) return fail_errno("size of the file to import");
  return static_cast<uint64_t>(st.st_blocks) * 512;
}

}  // namespace

Result<ImageStore::Packs> ImageStore::open_packs(const ImageStoreOptions& options) {
  TRY_ASSIGN(std::unique_ptr<chunk::PackStorage> here, chunk::DirectoryStorage::open(options.directory + "/packs"));
  if (options.behind) here = options.behind(std::move(here));
  Packs packs;
  if (options.remote) {
    TRY_ASSIGN(std::unique_ptr<chunk::TieredStorage> tiered, RemoteTier::behind(std::move(here), *options.remote));
    packs.tiered = tiered.get();
    packs.storage = std::move(tiered);
  } else {
    auto counted = std::make_unique<chunk::CountedStorage>(std::move(here));
    packs.counted = counted.get();
    packs.storage = std::move(counted);
  }
  return packs;
}

ImageStore::PackReads ImageStore::pack_reads() const {
  if (tiered_) return {.local_bytes = tiered_->local_counts().read_bytes, .remote_bytes = tiered_->remote_counts().read_bytes};
  return {.local_bytes = counted_->counts().read_bytes, .remote_bytes = 0};
}

Result<std::unique_ptr<ImageStore>> ImageStore::open(ImageStoreOptions options) {
  const std::string& directory = options.directory;
  TRY(make_lasting_directories(directory, 0700));
  if (options.common && options.remote) TRY(options.common->check_remote_is_free(*options.remote));
  TRY_ASSIGN(Packs packs, open_packs(options));
  chunk::Store* const common = options.common ? options.common->store_.get() : nullptr;
  TRY_ASSIGN(std::unique_ptr<chunk::Store> store, chunk::Store::open(std::move(packs.storage), directory + "/index.db",
                                                                     {.set_space_aside = true, .common = common}));
  TRY_ASSIGN(
      std::unique_ptr<chunk::ChunkCache> cache,
      chunk::ChunkCache::open(directory + "/cache", {.max_bytes = options.cache_bytes, .trust = chunk::Trust::kSameBoot}));
  for (const char* part : {"/images", "/templates", "/snapshots"}) remove_half_replaced(directory + part);
  TRY_ASSIGN(commit::Catalogue images, commit::Catalogue::open(directory + "/images"));
  TRY_ASSIGN(commit::Catalogue templates, commit::Catalogue::open(directory + "/templates"));
  TRY_ASSIGN(commit::SnapshotCatalogue snapshots, commit::SnapshotCatalogue::open(directory + "/snapshots"));
  return std::unique_ptr<ImageStore>(new ImageStore(std::move(options), packs, std::move(store), std::move(cache),
                                                    std::move(images), std::move(templates), std::move(snapshots)));
}

ImageStore::ImageStore(ImageStoreOptions options, const Packs& packs, std::unique_ptr<chunk::Store> store,
                       std::unique_ptr<chunk::ChunkCache> cache, commit::Catalogue images, commit::Catalogue templates,
                       commit::SnapshotCatalogue snapshots)
    : options_(std::move(options)),
      counted_(packs.counted),
      tiered_(packs.tiered),
      store_(std::move(store)),
      remote_(tiered_ ? std::make_unique<RemoteTier>(*tiered_, *options_.remote) : nullptr),
      cache_(std::move(cache)),
      fetcher_(*store_, counters_),
      images_(std::move(images)),
      templates_(std::move(templates)),
      snapshots_(std::move(snapshots)) {
  if (!options_.common) return;
  const std::lock_guard lock(options_.common->tenants_mutex_);
  options_.common->tenants_.insert(this);
}

ImageStore::~ImageStore() {
  if (!options_.common) return;
  const std::lock_guard lock(options_.common->tenants_mutex_);
  options_.common->tenants_.erase(this);
}

// Of two domains at one place each would find the other's packs when it rebuilds its index.
Status ImageStore::check_remote_is_free(const RemoteTierOptions& wanted) {
  const auto is_taken_by = [&](const ImageStore& one) {
    const std::optional<RemoteTierOptions>& its = one.options_.remote;
    return its && its->place.endpoint == wanted.place.endpoint && its->place.bucket == wanted.place.bucket &&
           its->prefix == wanted.prefix;
  };
  const std::lock_guard lock(tenants_mutex_);
  if (!is_taken_by(*this) && std::ranges::none_of(tenants_, [&](const ImageStore* one) { return is_taken_by(*one); }))
    return {};
  return fail(ErrorKind::kInvalid, "prefix '" + wanted.prefix + "' of bucket '" + wanted.place.bucket +
                                       "' is that of another domain: each needs its own");
}

Result<std::shared_ptr<OpenImage>> ImageStore::add(const ImageId& id, chunk::Batch&, const image::ManifestRoot& root) {
  const std::lock_guard lock(names_mutex_);
  TRY(catalogue(id.space).add(id.name, root));
  return remember(id, root);
}

Result<std::shared_ptr<OpenImage>> ImageStore::use(const ImageId& id) {
  const std::lock_guard lock(names_mutex_);
  if (std::shared_ptr<OpenImage> open = find_open(id)) return open;
  const Result<image::ManifestRoot> root = root_of(id);
  if (root) return remember(id, *root);
  const bool may_be_public = options_.common && id.space == ImageSpace::kTemplate;
  if (may_be_public && root.error().kind() == ErrorKind::kNotFound) return options_.common->use(id);
  return tl::unexpected<Error>(root.error());
}

Result<image::ManifestRoot> ImageStore::root_of(const ImageId& id) const {
  if (id.space != ImageSpace::kSnapshot) return catalogue(id.space).get(id.name);
  TRY_ASSIGN(commit::SnapshotRecord record, snapshots_.get(id.name));
  return std::move(record.disk);
}

Status ImageStore::remove(const ImageId& id) {
  const std::lock_guard lock(names_mutex_);
  return forget(id);
}

Status ImageStore::forget(const ImageId& id) {
  TRY(catalogue(id.space).remove(id.name));
  for (InUse& one : in_use_)
    if (one.id == id) one.named = false;
  wants_collection_ = true;
  return {};
}

// An image that lost its name in use is garbage from when its last user goes.
void ImageStore::drop_unused() {
  std::erase_if(in_use_, [this](const InUse& one) {
    if (!one.image.expired()) return false;
    if (!one.named) wants_collection_ = true;
    return true;
  });
}

Result<std::vector<std::string>> ImageStore::names(ImageSpace space) const {
  const std::lock_guard lock(names_mutex_);
  return catalogue(space).names();
}

Status ImageStore::keep_templates(const std::set<std::string>& wanted) {
  const std::lock_guard lock(names_mutex_);
  drop_unused();
  std::set<std::string> used = wanted;
  for (const InUse& one : in_use_)
    if (one.id.space == ImageSpace::kTemplate) used.insert(one.id.name);
  TRY_ASSIGN(const std::vector<std::string> names, templates_.names());
  for (const std::string& name : names)
    if (!used.contains(name)) TRY(forget({ImageSpace::kTemplate, name}));
  return {};
}

std::shared_ptr<OpenImage> ImageStore::find_open(const ImageId& id) {
  for (const InUse& one : in_use_)
    if (one.named && one.id == id)
      if (std::shared_ptr<OpenImage> open = one.image.lock()) return open;
  return nullptr;
}

std::shared_ptr<OpenImage> ImageStore::remember(const ImageId& id, const image::ManifestRoot& root) {
  drop_unused();
  const auto load_page = [this](const Digest& page) -> Result<std::string> {
    TRY_ASSIGN(const std::vector<std::byte> bytes, fetcher_.chunk(page));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const auto open = std::make_shared<OpenImage>(id, image::Manifest::of(root, load_page));
  in_use_.push_back({id, open});
  return open;
}

Status ImageStore::check_new(const ImageId& id) {
  TRY(commit::check_image_name(id.name));
  if (const Result<std::shared_ptr<OpenImage>> there = use(id); there || there.error().kind() != ErrorKind::kNotFound)
    return fail(ErrorKind::kExists, "there is an image '" + id.name + "' already");
  return {};
}

Result<std::shared_ptr<OpenImage>> ImageStore::store_image(
    const ImageId& id, const std::string& what, const std::function<Result<image::ManifestRoot>(chunk::Batch&)>& fill) {
  const auto stored = [&]() -> Result<std::shared_ptr<OpenImage>> {
    chunk::Batch batch = store_->begin();
    TRY_ASSIGN(const image::ManifestRoot root, fill(batch));
    TRY(batch.commit());
    options_.reached(what + ".stored");
    TRY_ASSIGN(std::shared_ptr<OpenImage> image, add(id, batch, root));
    options_.reached(what + ".named");
    return image;
  };
  Result<std::shared_ptr<OpenImage>> image = naming(options_.directory, stored());
  if (!image) want_collection();  // of what it stored before it failed
  return image;
}

Result<std::shared_ptr<OpenImage>> ImageStore::commit_disk(const ImageId& id, const OpenImage& base,
                                                           std::vector<image::OverlayFiles> overlays) {
  TRY(check_new(id));
  // The overlays are of this boot: a machine does not outlive its host.
  TRY_ASSIGN(const std::unique_ptr<image::OverlayStack> disk,
             image::OverlayStack::open(std::make_unique<commit::StoredSource>(*store_, base.root()), base.blocks(),
                                       std::move(overlays), std::nullopt, image::HostHistory::kSameBoot));
  return store_image(id, "commit", [&](chunk::Batch& batch) -> Result<image::ManifestRoot> {
    image::Manifest manifest = commit::manifest_in(*store_, base.root());
    TRY(commit::commit_disk(*disk, manifest, batch));
    return manifest.root();
  });
}

Result<std::shared_ptr<OpenImage>> ImageStore::import_raw(const ImageId& id, int file, OpenImage* parent,
                                                          const commit::OnProgress& progress) {
  TRY(check_new(id));
  TRY_ASSIGN(const uint64_t bytes, allocated_bytes(file));
  TRY(options_.admit(bytes));
  std::optional<image::Manifest> from;
  if (parent) from = commit::manifest_in(*store_, parent->root());
  return store_image(id, "image",
                     [&](chunk::Batch& batch) { return commit::import_raw(file, batch, from ? &*from : nullptr, progress); });
}

Status ImageStore::export_raw(OpenImage& image, int file, const commit::OnProgress& progress) const {
  image::Manifest manifest = commit::manifest_in(*store_, image.root());
  return commit::export_raw(manifest, *store_, file, progress);
}

void ImageStore::warm(OpenImage& image, int file) {
  std::vector<std::byte> bytes;
  for (uint64_t number = 0; number < image.chunks(); number++) {
    const Result<Digest> name = image.chunk(number);
    if (!name) return;
    if (*name == image::kZeros || cache_->find(*name)) continue;
    const bool room = cache_->usage().bytes + image::kChunkBytes <= options_.cache_bytes && options_.admit(image::kChunkBytes);
    bytes.resize(image.blocks_of(number) * image::kBlockBytes);
    if (!room || !pread_exact(file, bytes, number * image::kChunkBytes) || !cache_->fill(*name, bytes)) return;
  }
}

Result<std::vector<image::ManifestRoot>> ImageStore::roots() {
  const std::lock_guard lock(names_mutex_);
  std::vector<image::ManifestRoot> out;
  const auto add = [&](const std::string&, const image::ManifestRoot& root) -> Status {
    out.push_back(root);
    return {};
  };
  for (const ImageSpace space : {ImageSpace::kUser, ImageSpace::kTemplate}) TRY(commit::visit_roots(catalogue(space), add));
  TRY(commit::visit_roots(snapshots_, add));
  for (const InUse& one : in_use_)
    if (const std::shared_ptr<OpenImage> open = one.image.lock()) out.push_back(open->root());
  return out;
}

bool ImageStore::wants_collection() {
  const std::lock_guard lock(names_mutex_);
  drop_unused();
  return wants_collection_;
}

void ImageStore::want_collection() {
  const std::lock_guard lock(names_mutex_);
  wants_collection_ = true;
}

Status ImageStore::add_needed(chunk::Store::LiveSet& live) {
  TRY_ASSIGN(const std::vector<image::ManifestRoot> all, roots());
  for (const image::ManifestRoot& root : all) TRY(commit::add_needed(*store_, root, live.chunks));
  return {};
}

// Chunks of this store that their manifests name, frames that their chunks refer to.
Status ImageStore::add_needed_by_tenants(chunk::Store::LiveSet& live) {
  const std::lock_guard lock(tenants_mutex_);
  for (ImageStore* tenant : tenants_) {
    TRY(tenant->add_needed(live));
    TRY_ASSIGN(std::unordered_set<chunk::FrameId> frames, tenant->store_->uses_of_common());
    live.frames.merge(frames);
  }
  return {};
}

Result<chunk::Store::Collected> ImageStore::collect() {
  const auto ask = [this]() -> Result<chunk::Store::LiveSet> {
    {
      const std::lock_guard lock(names_mutex_);
      wants_collection_ = false;
    }
    chunk::Store::LiveSet live;
    TRY(add_needed(live));
    TRY(add_needed_by_tenants(live));
    return live;
  };
  const Result<chunk::Store::Collected> collected = store_->collect(ask);
  if (!collected || collected->only_whole_packs) want_collection();
  // What it referred to may be garbage there now.
  if (collected && options_.common && collected->chunks_removed > 0) options_.common->want_collection();
  return collected;
}

}  // namespace ramet::host
