// host/images/images.h - the images of one dedup domain, wired: the store, the reader, the chunk socket; and what users do with
// images of their own. Template disks are kept in the same store under names that users cannot take. Not here: templates and
// machines (template_store.h, host_impl.h), HTTP. Thread: every method from any. Owner: HostImpl.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/images/chunk_server.h"
#include "host/images/image_diff.h"
#include "host/images/image_transfer.h"
#include "host/images/scrubber.h"
#include "host/types.h"

namespace ramet::host {

class Images {
 public:
  struct Options {
    ImageStoreOptions store;
    FillPolicy fill;
    std::string socket;        // where clients read images by name; empty: nowhere
    Images* common = nullptr;  // the public ones, before which these of a tenant stand; they outlive this
  };
  // Errors: those of ImageStore::open, by errno.
  static Result<std::unique_ptr<Images>> open(Options options);

  // For readers: an image of a user by its name, the disk of a template as template:SHA256.
  // Errors: kInvalid (name), kNotFound, those of the store.
  Result<std::shared_ptr<OpenImage>> find(const std::string& name) { return find_in(*store_, name); }

  // By name.   Errors: those of the store.
  Result<std::vector<ImageInfo>> list();
  // Errors: kInvalid (name), kNotFound, those of the store.
  Result<ImageInfo> get(const std::string& name);
  Result<std::unique_ptr<ImageUpload>> upload(const std::string& name) { return ImageUpload::begin(*store_, name); }
  Result<std::unique_ptr<ImageDownload>> download(const std::string& name, const ExportOptions& options = {});
  Result<ImageDiff> diff(const std::string& a, const std::string& b);
  // Whoever reads it goes on.   Errors: kInvalid (name), kNotFound, kIo.
  Status remove(const std::string& name) { return store_->remove({ImageSpace::kUser, name}); }

  Result<StoreReport> report() const;

  // Some of the packs, a different part each time; what is damaged is logged, and fetched anew where it can be. Slow.
  void scrub() { scrubber_.next_pack(); }

  // Whether a new image can have this name.   Errors: kInvalid, kExists.
  Status check_new(const std::string& name) { return store_->check_new({ImageSpace::kUser, name}); }

  ImageStore& store() { return *store_; }
  ChunkServer& server() { return *server_; }

 private:
  Images(std::unique_ptr<ImageStore> store, std::unique_ptr<DiskReader> reader, std::unique_ptr<ChunkServer> server)
      : store_(std::move(store)), reader_(std::move(reader)), server_(std::move(server)), scrubber_(*store_) {}
  static Result<std::shared_ptr<OpenImage>> find_in(ImageStore& store, const std::string& name);
  Result<std::vector<std::shared_ptr<OpenImage>>> all();
  Result<std::vector<ImageInfo>> measured(const std::function<bool(const OpenImage&)>& wanted);

  // Each is used by the next.
  const std::unique_ptr<ImageStore> store_;
  const std::unique_ptr<DiskReader> reader_;
  const std::unique_ptr<ChunkServer> server_;
  Scrubber scrubber_;
};

}  // namespace ramet::host
