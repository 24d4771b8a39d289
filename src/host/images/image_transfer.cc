#include "host/images/image_transfer.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "base/file.h"
#include "image/zero_runs.h"

namespace ramet::host {
namespace {

using image::kBlockBytes;

constexpr uint64_t kRoomCheckedEvery = 64u << 20;

std::string incoming(const ImageStore& images) { return images.options().directory + "/incoming"; }

std::atomic<uint64_t> next_upload{0};

}  // namespace

void remove_unfinished_uploads(const ImageStore& images) {
  std::error_code error;
  std::filesystem::remove_all(incoming(images), error);
}

Result<std::unique_ptr<ImageUpload>> ImageUpload::begin(ImageStore& images, const std::string& name) {
  TRY(images.check_new({ImageSpace::kUser, name}));
  TRY(make_directories(incoming(images), 0700));
  const std::string path = incoming(images) + "/" + std::to_string(next_upload++);
  TRY_ASSIGN(UniqueFd file, open_file(path, O_RDWR | O_CREAT | O_EXCL, 0600));
  return std::unique_ptr<ImageUpload>(new ImageUpload(images, name, path, std::move(file)));
}

ImageUpload::~ImageUpload() { ::unlink(path_.c_str()); }

Status ImageUpload::check_room(size_t more) {
  if (bytes_ + more > image::kMaxDiskBlocks * kBlockBytes)
    return fail(ErrorKind::kInvalid, "an image of more than " + std::to_string(image::kMaxDiskBlocks * kBlockBytes) + " bytes");
  unchecked_bytes_ += more;
  if (bytes_ != 0 && unchecked_bytes_ < kRoomCheckedEvery) return {};
  unchecked_bytes_ = 0;
  return images_.options().admit(kRoomCheckedEvery);
}

Status ImageUpload::write(std::span<const std::byte> bytes) {
  TRY(check_room(bytes.size()));
  while (!bytes.empty()) {
    // Up to the next block of the file, then whole ones.
    const size_t to_border = (kBlockBytes - bytes_ % kBlockBytes) % kBlockBytes;
    const size_t whole = bytes.size() / kBlockBytes * kBlockBytes;
    const size_t take = to_border != 0 ? std::min(to_border, bytes.size()) : (whole != 0 ? whole : bytes.size());
    const std::span<const std::byte> piece = bytes.first(take);
    if (take % kBlockBytes == 0) {
      TRY(image::write_nonzero(file_.get(), bytes_, piece));
    } else if (!all_zero(piece)) {
      TRY(pwrite_all(file_.get(), piece, bytes_));
    }
    bytes_ += take;
    bytes = bytes.subspan(take);
  }
  return {};
}

Result<std::shared_ptr<OpenImage>> ImageUpload::finish(const std::string& parent) {
  if (::ftruncate(file_.get(), static_cast<off_t>(bytes_)) < 0) return fail_errno("size of the upload");
  std::shared_ptr<OpenImage> from;
  if (!parent.empty()) {
    TRY_ASSIGN(from, images_.use({ImageSpace::kUser, parent}));
  }
  return images_.import_raw({ImageSpace::kUser, name_}, file_.get(), from.get());
}

Result<std::span<const std::byte>> ImageDownload::next() {
  if (chunk_ == image_->chunks()) return std::span<const std::byte>();
  const uint64_t number = chunk_++, bytes = image_->blocks_of(number) * kBlockBytes;
  TRY_ASSIGN(const Digest name, image_->chunk(number));
  if (name == image::kZeros) {
    bytes_.assign(bytes, std::byte{0});
    return std::span<const std::byte>(bytes_);
  }
  TRY_ASSIGN(bytes_, images_.fetcher().chunk(name));
  if (bytes_.size() != bytes)
    return fail(ErrorKind::kCorrupt, "chunk " + std::to_string(number) + " of the image has " + std::to_string(bytes_.size()) +
                                         " bytes, not " + std::to_string(bytes));
  return std::span<const std::byte>(bytes_);
}

}  // namespace ramet::host
