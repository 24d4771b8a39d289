// host/images/image_transfer.h - an image on its way in or out, as bytes in order. In: any format, kept as a sparse file until
// it is whole, so that a client that goes away leaves nothing; made a raw disk if it is none, then an image. Out: raw, chunk by
// chunk, or another format out of a file. What comes in is foreign (docs/threat_model.md). Not here: HTTP, the formats
// (commit/disk_form.h). Thread: one at a time each. Owner: the caller; must not outlive its store.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "commit/export.h"
#include "commit/import.h"
#include "host/images/image_store.h"

namespace ramet::host {

struct ImportOptions {
  std::string format;       // as commit::image_format(), without dir; empty: guessed
  std::string parent;       // an image that it is probably a version of; empty: none
  std::string tag;          // of an OCI image; empty: the only one
  uint64_t disk_bytes = 0;  // of the file system that tar and OCI become; 0: fitting
  // Asked now and then while a format is converted: whether nobody waits for the image any more.
  std::function<bool()> given_up = [] { return false; };
  std::function<void(std::string_view step, uint64_t done_bytes, uint64_t total_bytes)> on_step = {};  // total 0: not known
};

class ImageUpload {
 public:
  // Errors: kExists, kInvalid (name), kNoSpace, by errno.
  static Result<std::unique_ptr<ImageUpload>> begin(ImageStore& images, const std::string& name);
  ~ImageUpload();
  ImageUpload(const ImageUpload&) = delete;
  ImageUpload& operator=(const ImageUpload&) = delete;

  // Blocks of zeros take no space.   Errors: kNoSpace, kInvalid (longer than a disk may be), kIo.
  Status write(std::span<const std::byte> bytes);
  // The image is there, durably.   Errors: those of ImageStore::import_raw; kNotFound (parent, tag), kInvalid (a foreign image
  // is refused, the reason in the message), kUnavailable (a program is missing), kTimeout, kCancelled (given up).
  Result<std::shared_ptr<OpenImage>> finish(const ImportOptions& options);

 private:
  ImageUpload(ImageStore& images, std::string name, std::string path, UniqueFd file)
      : images_(images), name_(std::move(name)), path_(std::move(path)), file_(std::move(file)) {}
  Status check_room(size_t more);
  Result<commit::ImageFormat> format(const ImportOptions& options) const;
  Result<std::shared_ptr<OpenImage>> import(int disk, const std::shared_ptr<OpenImage>& parent, const ImportOptions& options);
  Result<UniqueFd> converted(commit::ImageFormat format, const ImportOptions& options) const;

  ImageStore& images_;
  const std::string name_, path_;
  const UniqueFd file_;
  uint64_t bytes_ = 0;
  uint64_t unchecked_bytes_ = 0;  // written since the last look at the free space
};

struct ExportOptions {
  std::string format = "raw";  // as commit::export_format()
  // Asked now and then while the image is converted: whether nobody waits for it any more.
  std::function<bool()> given_up = [] { return false; };
};

class ImageDownload {
 public:
  // A format other than raw is made first, in a file without a name.
  // Errors: kInvalid (format, or files of an image that has none), those of the store; kUnavailable (a program is missing),
  // kNoSpace, kTimeout, kCancelled.
  static Result<std::unique_ptr<ImageDownload>> begin(ImageStore& images, std::shared_ptr<OpenImage> image,
                                                      const ExportOptions& options);
  // That come together.
  uint64_t bytes() const { return file_ ? file_bytes_ : image_->blocks() * image::kBlockBytes; }
  // The next bytes, a chunk at a time; valid until the next call; none at the end.   Errors: those of the store, kIo.
  Result<std::span<const std::byte>> next();

 private:
  ImageDownload(ImageStore& images, std::shared_ptr<OpenImage> image) : images_(images), image_(std::move(image)) {}
  Status convert(commit::ExportFormat format, const ExportOptions& options);
  Result<uint64_t> work_bytes(commit::ExportFormat format);
  Result<std::span<const std::byte>> next_of_file();

  ImageStore& images_;
  const std::shared_ptr<OpenImage> image_;
  uint64_t chunk_ = 0;
  UniqueFd file_;  // what it was converted to, if it was
  uint64_t file_bytes_ = 0, file_at_ = 0;
  std::vector<std::byte> bytes_;
};

// What uploads of a daemon that was killed left.
void remove_unfinished_uploads(const ImageStore& images);

}  // namespace ramet::host
