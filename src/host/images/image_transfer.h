// host/images/image_transfer.h - an image on its way in or out, as bytes in order. In: kept as a sparse file until it is whole,
// so that a client that goes away leaves nothing, then made an image. Out: chunk by chunk. Not here: HTTP, compression.
// Thread: one at a time each. Owner: the caller; must not outlive its store.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/images/image_store.h"

namespace ramet::host {

class ImageUpload {
 public:
  // Errors: kExists, kInvalid (name), by errno.
  static Result<std::unique_ptr<ImageUpload>> begin(ImageStore& images, const std::string& name);
  ~ImageUpload();
  ImageUpload(const ImageUpload&) = delete;
  ImageUpload& operator=(const ImageUpload&) = delete;

  // Blocks of zeros take no space.   Errors: kNoSpace, kInvalid (longer than a disk may be), kIo.
  Status write(std::span<const std::byte> bytes);
  // The image is there, durably. `parent`: an image that it is probably a version of; may be empty.
  // Errors: those of ImageStore::import_raw, kNotFound (parent).
  Result<std::shared_ptr<OpenImage>> finish(const std::string& parent);

 private:
  ImageUpload(ImageStore& images, std::string name, std::string path, UniqueFd file)
      : images_(images), name_(std::move(name)), path_(std::move(path)), file_(std::move(file)) {}
  Status check_room(size_t more);

  ImageStore& images_;
  const std::string name_, path_;
  const UniqueFd file_;
  uint64_t bytes_ = 0;
  uint64_t unchecked_bytes_ = 0;  // written since the last look at the free space
};

class ImageDownload {
 public:
  ImageDownload(ImageStore& images, std::shared_ptr<OpenImage> image) : images_(images), image_(std::move(image)) {}
  uint64_t bytes() const { return image_->blocks() * image::kBlockBytes; }
  // The next bytes, a chunk at a time; valid until the next call; none at the end.   Errors: those of the store.
  Result<std::span<const std::byte>> next();

 private:
  ImageStore& images_;
  const std::shared_ptr<OpenImage> image_;
  uint64_t chunk_ = 0;
  std::vector<std::byte> bytes_;
};

// What uploads of a daemon that was killed left.
void remove_unfinished_uploads(const ImageStore& images);

}  // namespace ramet::host
