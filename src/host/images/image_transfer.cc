#include "host/images/image_transfer.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "base/file.h"
#include "base/place.h"
#include "commit/disk_form.h"
#include "commit/guess_format.h"
#include "image/zero_runs.h"

namespace ramet::host {
namespace {

using image::kBlockBytes;

std::string incoming(const ImageStore& images) { return images.options().directory + "/incoming"; }

std::atomic<uint64_t> next_upload{0};

commit::OnProgress steps_of(const ImportOptions& options) {
  if (!options.on_step) return {};
  return [&options](const commit::Progress& p) { options.on_step(p.step, p.done_bytes, p.total_bytes); };
}

// Work on this image goes on while there is room and somebody waits.
commit::ImageLimits limits_of(const ImageStore& images, const std::string& name, const std::function<bool()>& given_up) {
  commit::ImageLimits limits;
  limits.admit = [&images, name, given_up](uint64_t bytes) -> Status {
    if (given_up()) return fail(ErrorKind::kCancelled, "nobody waits for image '" + name + "' any more");
    return images.options().admit(bytes);
  };
  return limits;
}

// What is wrong with a foreign image is wrong with the request, and no fault of the store.
tl::unexpected<Error> refused(const Error& error) {
  if (error.kind() != ErrorKind::kCorrupt && error.kind() != ErrorKind::kUnsupported) return tl::unexpected<Error>(error);
  return tl::unexpected<Error>(Error(ErrorKind::kInvalid, error.message()).with_hint(error.hint()));
}

}  // namespace

void remove_unfinished_uploads(const ImageStore& images) {
  std::error_code error;
  std::filesystem::remove_all(incoming(images), error);
}

Result<std::unique_ptr<ImageUpload>> ImageUpload::begin(ImageStore& images, const std::string& name) {
  TRY(images.check_new({ImageSpace::kUser, name}));
  TRY(images.options().admit(commit::kAdmitBytes));
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
  if (unchecked_bytes_ < commit::kAdmitBytes) return {};
  unchecked_bytes_ = 0;
  return images_.options().admit(commit::kAdmitBytes);
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
      TRY(naming(incoming(images_), image::write_nonzero(file_.get(), bytes_, piece)));
    } else if (!all_zero(piece)) {
      TRY(naming(incoming(images_), pwrite_all(file_.get(), piece, bytes_)));
    }
    bytes_ += take;
    bytes = bytes.subspan(take);
  }
  return {};
}

Result<commit::ImageFormat> ImageUpload::format(const ImportOptions& options) const {
  if (options.format.empty()) {
    std::vector<std::byte> head(std::min<uint64_t>(bytes_, commit::kGuessBytes));
    TRY(pread_exact(file_.get(), head, 0));
    return commit::guess_format(head);
  }
  TRY_ASSIGN(const commit::ImageFormat format, commit::image_format(options.format));
  if (format == commit::ImageFormat::kDirectory)
    return fail(ErrorKind::kInvalid, "a directory is sent as a tar of it, as format tar");
  return format;
}

Result<UniqueFd> ImageUpload::converted(commit::ImageFormat format, const ImportOptions& options) const {
  commit::ImportRequest request{.format = format,
                                .path = path_,
                                .name = name_,
                                .tag = options.tag,
                                .disk_bytes = options.disk_bytes,
                                .work_directory = incoming(images_),
                                .limits = limits_of(images_, name_, options.given_up)};
  TRY_ASSIGN(commit::DiskForm disk, commit::disk_form_of(request, steps_of(options)));
  return std::move(disk.file);
}

Result<std::shared_ptr<OpenImage>> ImageUpload::finish(const ImportOptions& options) {
  if (::ftruncate(file_.get(), static_cast<off_t>(bytes_)) < 0) return fail_errno("size of the upload");
  std::shared_ptr<OpenImage> parent;
  if (!options.parent.empty()) {
    TRY_ASSIGN(parent, images_.use({ImageSpace::kUser, options.parent}));
  }
  const Result<commit::ImageFormat> known = format(options);
  if (!known) return refused(known.error());
  if (*known == commit::ImageFormat::kRaw) return import(file_.get(), parent, options);
  Result<UniqueFd> disk = converted(*known, options);
  if (!disk) return refused(disk.error());
  if (::ftruncate(file_.get(), 0) < 0) return fail_errno("give back the space of the upload");
  return import(disk->get(), parent, options);
}

Result<std::shared_ptr<OpenImage>> ImageUpload::import(int disk, const std::shared_ptr<OpenImage>& parent,
                                                       const ImportOptions& options) {
  return images_.import_raw({ImageSpace::kUser, name_}, disk, parent.get(), steps_of(options));
}

Result<std::unique_ptr<ImageDownload>> ImageDownload::begin(ImageStore& images, std::shared_ptr<OpenImage> image,
                                                            const ExportOptions& options) {
  TRY_ASSIGN(const commit::ExportFormat format, commit::export_format(options.format));
  std::unique_ptr<ImageDownload> download(new ImageDownload(images, std::move(image)));
  if (format != commit::ExportFormat::kRaw) TRY(download->convert(format, options));
  return download;
}

// What the work takes at most: the file, and for qcow2 the raw disk, for OCI the layer beside it.
Result<uint64_t> ImageDownload::work_bytes(commit::ExportFormat format) {
  uint64_t bytes = 0;
  for (uint64_t number = 0; number < image_->chunks(); number++) {
    TRY_ASSIGN(const Digest name, image_->chunk(number));
    if (name != image::kZeros) bytes += image_->blocks_of(number) * image::kBlockBytes;
  }
  return format == commit::ExportFormat::kTar ? bytes : 2 * bytes;
}

Status ImageDownload::convert(commit::ExportFormat format, const ExportOptions& options) {
  TRY_ASSIGN(const uint64_t work, work_bytes(format));
  TRY(images_.options().admit(work));
  TRY(make_directories(incoming(images_), 0700));
  const std::string& name = image_->id().name;
  const commit::ExportRequest request{.format = format, .name = name, .limits = limits_of(images_, name, options.given_up)};
  image::Manifest manifest = commit::manifest_in(images_.chunks(), image_->root());
  TRY_ASSIGN(file_, commit::export_unnamed(request, manifest, images_.chunks(), incoming(images_)));
  TRY_ASSIGN(file_bytes_, file_size(file_.get()));
  return {};
}

Result<std::span<const std::byte>> ImageDownload::next_of_file() {
  bytes_.resize(std::min<uint64_t>(image::kChunkBytes, file_bytes_ - file_at_));
  TRY(pread_exact(file_.get(), bytes_, file_at_));
  file_at_ += bytes_.size();
  return std::span<const std::byte>(bytes_);
}

Result<std::span<const std::byte>> ImageDownload::next() {
  if (file_) return next_of_file();
  if (chunk_ == image_->chunks()) return std::span<const std::byte>();
  const uint64_t number = chunk_++, bytes = image_->blocks_of(number) * kBlockBytes;
  TRY_ASSIGN(const Digest name, image_->chunk(number));
  if (name == image::kZeros) {
    bytes_.assign(bytes, std::byte{0});
    return std::span<const std::byte>(bytes_);
  }
  TRY_ASSIGN(bytes_, images_.fetcher().chunk(name));
  TRY(commit::check_chunk_bytes(image_->root(), number, bytes_.size()));
  return std::span<const std::byte>(bytes_);
}

}  // namespace ramet::host
