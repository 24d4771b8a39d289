#include "host/images/images.h"

#include "host/images/image_sizes.h"

namespace ramet::host {

Result<std::unique_ptr<Images>> Images::open(Options options) {
  TRY_ASSIGN(std::unique_ptr<ImageStore> store, ImageStore::open(std::move(options.store)));
  remove_unfinished_uploads(*store);
  auto reader = std::make_unique<DiskReader>(*store, DiskReader::Options{.fill = options.fill});
  ImageStore& images = *store;
  const auto find = [&images](const std::string& name) { return images.use({ImageSpace::kUser, name}); };
  TRY_ASSIGN(std::unique_ptr<ChunkServer> server, ChunkServer::start(*reader, {.find = find}));
  if (!options.socket.empty()) TRY(server->listen(options.socket));
  return std::unique_ptr<Images>(new Images(std::move(store), std::move(reader), std::move(server)));
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

Result<std::vector<ImageInfo>> Images::list() {
  TRY_ASSIGN(const std::vector<std::shared_ptr<OpenImage>> images, all());
  TRY_ASSIGN(const std::vector<ImageSizes> sizes, measure_images(*store_, images));
  std::vector<ImageInfo> out;
  for (size_t i = 0; i < images.size(); i++)
    if (images[i]->id().space == ImageSpace::kUser)
      out.push_back(
          {images[i]->id().name, images[i]->blocks() * image::kBlockBytes, sizes[i].stored_bytes, sizes[i].unique_bytes});
  return out;
}

Result<ImageInfo> Images::get(const std::string& name) {
  TRY(store_->use({ImageSpace::kUser, name}));
  TRY_ASSIGN(const std::vector<ImageInfo> images, list());
  for (const ImageInfo& image : images)
    if (image.name == name) return image;
  return fail(ErrorKind::kNotFound, "no image '" + name + "'");
}

Result<std::unique_ptr<ImageDownload>> Images::download(const std::string& name) {
  TRY_ASSIGN(std::shared_ptr<OpenImage> image, store_->use({ImageSpace::kUser, name}));
  return std::make_unique<ImageDownload>(*store_, std::move(image));
}

Result<ImageDiff> Images::diff(const std::string& a, const std::string& b) {
  TRY_ASSIGN(const std::shared_ptr<OpenImage> first, store_->use({ImageSpace::kUser, a}));
  TRY_ASSIGN(const std::shared_ptr<OpenImage> second, store_->use({ImageSpace::kUser, b}));
  return diff_images(*store_, *first, *second);
}

Result<ImagesReport> Images::report() {
  TRY_ASSIGN(const std::vector<std::string> images, store_->names(ImageSpace::kUser));
  TRY_ASSIGN(const std::vector<std::string> templates, store_->names(ImageSpace::kTemplate));
  TRY_ASSIGN(const chunk::Index::Totals totals, store_->chunks().totals());
  const chunk::ChunkCache::Usage cache = store_->cache().usage();
  const ReadCounters& counters = store_->counters();
  return ImagesReport{.images = images.size(),
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
                      .filled_bytes = counters.filled_bytes,
                      .failed = counters.failed};
}

}  // namespace ramet::host
