// host/images/images.h - the images of a host, wired: the store, the reader, the chunk socket; and what users do with images of
// their own. Template disks are kept in the same store under names that users cannot take.
// Not here: templates and machines (template_store.h, host_impl.h), HTTP. Thread: every method from any. Owner: HostImpl.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/images/chunk_server.h"
#include "host/images/image_diff.h"
#include "host/images/image_transfer.h"

namespace ramet::host {

struct ImageInfo {
  std::string name;
  uint64_t bytes = 0;         // as its reader sees it
  uint64_t stored_bytes = 0;  // what it needs in the store
  uint64_t unique_bytes = 0;  // of these, needed by no other image
};

struct ImagesReport {
  uint64_t images = 0, template_disks = 0;
  uint64_t packs = 0, pack_bytes = 0, chunks = 0;
  uint64_t cached_chunks = 0, cache_bytes = 0, cache_leased_bytes = 0, cache_max_bytes = 0;
  uint64_t readers = 0, asks = 0, fetched_bytes = 0, filled_bytes = 0, failed = 0;
};

class Images {
 public:
  struct Options {
    ImageStoreOptions store;
    FillPolicy fill;
    std::string socket;  // where clients read images by name; empty: nowhere
  };
  // Errors: those of ImageStore::open, by errno.
  static Result<std::unique_ptr<Images>> open(Options options);

  // By name.   Errors: those of the store.
  Result<std::vector<ImageInfo>> list();
  // Errors: kInvalid (name), kNotFound, those of the store.
  Result<ImageInfo> get(const std::string& name);
  Result<std::unique_ptr<ImageUpload>> upload(const std::string& name) { return ImageUpload::begin(*store_, name); }
  Result<std::unique_ptr<ImageDownload>> download(const std::string& name);
  Result<ImageDiff> diff(const std::string& a, const std::string& b);
  // Whoever reads it goes on.   Errors: kInvalid (name), kNotFound, kIo.
  Status remove(const std::string& name) { return store_->remove({ImageSpace::kUser, name}); }

  Result<ImagesReport> report();

  ImageStore& store() { return *store_; }
  ChunkServer& server() { return *server_; }

 private:
  Images(std::unique_ptr<ImageStore> store, std::unique_ptr<DiskReader> reader, std::unique_ptr<ChunkServer> server)
      : store_(std::move(store)), reader_(std::move(reader)), server_(std::move(server)) {}
  Result<std::vector<std::shared_ptr<OpenImage>>> all();

  // Each is used by the next.
  const std::unique_ptr<ImageStore> store_;
  const std::unique_ptr<DiskReader> reader_;
  const std::unique_ptr<ChunkServer> server_;
};

}  // namespace ramet::host
