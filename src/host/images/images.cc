#include "host/images/images.h"

#include "host/images/image_sizes.h"

namespace ramet::host {

Result<std::unique_ptr<Images>> Images::open(Options options) {
  if (options.common) options.store.common = options.common->store_.get();
  DiskReader* const common = options.common ? options.common->reader_.get() : nullptr;
  TRY_ASSIGN(std::unique_ptr<ImageStore> store, ImageStore::open(std::move(options.store)));
  remove_unfinished_uploads(*store);
  auto reader = std::make_unique<DiskReader>(*store, DiskReader::Options{.fill = options.fill, .common = common});
  ImageStore& images = *store;
  const auto find = [&images](const std::string& name) { return find_in(images, name); };
  TRY_ASSIGN(std::unique_ptr<ChunkServer> server, ChunkServer::start(*reader, {.find = find}));
  if (!options.socket.empty()) TRY(server->listen(options.socket));
  return std::unique_ptr<Images>(new Images(std::move(store), std::move(reader), std::move(server)));
}

Result<std::shared_ptr<OpenImage>> Images::find_in(ImageStore& store, const std::string& name) {
  constexpr std::string_view kTemplate = "template:";
  if (name.starts_with(kTemplate)) return store.use({ImageSpace::kTemplate, name.substr(kTemplate.size())});
  return store.use({ImageSpace::kUser, name});
}

// Users' images first, by name.
Result<std::vector<std::shared_ptr<OpenImage>>> Images::all() {
  std::vector<std::shared_ptr<OpenImage>> out;
  for (const ImageSpace space : {ImageSpace::kUser, ImageSpace::kTemplate}) {
    TRY_ASSIGN(const std::vector<std::string> names, store_->names(space));
    for (const std::string& name : names)
      if (Result<std::shared_ptr<OpenImage>> image = store_->use({space, name}))  // else removed meanwhile
        out.push_back(*std::move(image));
  }
  return out;
}

Result<std::vector<ImageInfo>> Images::measured(const std::function<bool(const OpenImage&)>& wanted) {
  TRY_ASSIGN(const std::vector<std::shared_ptr<OpenImage>> images, all());
  TRY_ASSIGN(const std::vector<ImageSizes> sizes, measure_images(*store_, images));
  std::vector<ImageInfo> out;
  for (size_t i = 0; i < images.size(); i++)
    if (wanted(*images[i]))
      out.push_back(
          {images[i]->id().name, images[i]->blocks() * image::kBlockBytes, sizes[i].stored_bytes, sizes[i].unique_bytes});
  return out;
}

Result<std::vector<ImageInfo>> Images::list() {
  return measured([](const OpenImage& image) { return image.id().space == ImageSpace::kUser; });
}

Result<ImageInfo> Images::get(const std::string& name) {
  TRY_ASSIGN(const std::shared_ptr<OpenImage> one, find(name));
  TRY_ASSIGN(std::vector<ImageInfo> infos, measured([&](const OpenImage& image) { return image.id() == one->id(); }));
  if (infos.empty()) return fail(ErrorKind::kNotFound, "no image '" + name + "'");
  infos.front().name = name;
  return std::move(infos.front());
}

Result<std::unique_ptr<ImageDownload>> Images::download(const std::string& name, const ExportOptions& options) {
  TRY_ASSIGN(std::shared_ptr<OpenImage> image, find(name));
  return ImageDownload::begin(*store_, std::move(image), options);
}

Result<ImageDiff> Images::diff(const std::string& a, const std::string& b) {
  TRY_ASSIGN(const std::shared_ptr<OpenImage> first, find(a));
  TRY_ASSIGN(const std::shared_ptr<OpenImage> second, find(b));
  return diff_images(*store_, *first, *second);
}

Result<StoreReport> Images::report() const {
  TRY_ASSIGN(const std::vector<std::string> images, store_->names(ImageSpace::kUser));
  TRY_ASSIGN(const std::vector<std::string> templates, store_->names(ImageSpace::kTemplate));
  TRY_ASSIGN(const chunk::Index::Totals totals, store_->chunks().totals());
  const chunk::ChunkCache::Usage cache = store_->cache().usage();
  const ReadCounters& counters = store_->counters();
  const ImageStore::PackReads pack_reads = store_->pack_reads();
  const std::optional<Error> trouble = store_->remote() ? store_->remote()->trouble() : std::nullopt;
  return StoreReport{.images = images.size(),
                     .template_disks = templates.size(),
                     .packs = totals.packs,
                     .pack_bytes = totals.pack_bytes,
                     .chunks = totals.chunks,
                     .cached_chunks = cache.chunks,
                     .cache_bytes = cache.bytes,
                     .cache_leased_bytes = cache.leased_bytes,
                     .cache_max_bytes = store_->options().cache_bytes,
                     .readers = server_->usage().connections,
                     .asks = counters.asks,
                     .fetched_bytes = counters.fetched_bytes,
                     .distinct_frame_bytes = counters.distinct_bytes,
                     .filled_bytes = counters.filled_bytes,
                     .local_bytes = pack_reads.local_bytes,
                     .remote_bytes = pack_reads.remote_bytes,
                     .checked_bytes = counters.checked_bytes,
                     .failed = counters.failed,
                     .has_remote = store_->remote() != nullptr,
                     .remote_trouble = trouble ? trouble->message() : ""};
}

}  // namespace ramet::host
