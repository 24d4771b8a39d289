#include "vmm/devices/block/disk.h"

#include "image/raw_source.h"

namespace ramet::vmm {
namespace {

image::OverlayFiles files_of(OverlayDescriptors o) {
  return image::overlay_from_descriptors(std::move(o.id), std::move(o.data_rw), std::move(o.data_ro), std::move(o.log_rw),
                                         std::move(o.log_ro));
}

Status check_writable(const OverlayDescriptors& o) {
  if (o.data_rw && o.data_ro && o.log_rw && o.log_ro) return {};
  return fail(ErrorKind::kInvalid, "writable overlay " + o.id + " lacks a descriptor");
}

}  // namespace

Result<std::unique_ptr<Disk>> Disk::open(DiskDescription d) {
  if (d.size_bytes == 0 || d.size_bytes % image::kBlockBytes != 0)
    return fail(ErrorKind::kInvalid, "disk " + d.id + ": size " + std::to_string(d.size_bytes) + " is not a multiple of 4096");
  const uint64_t blocks = d.size_bytes / image::kBlockBytes;
  if (d.base && d.chunks) return fail(ErrorKind::kInvalid, "disk " + d.id + ": its base is a file and chunks at once");
  std::unique_ptr<image::BlockSource> base;
  image::ChunkedSource* chunked = nullptr;
  if (d.base) base = std::make_unique<image::RawSource>(std::make_unique<image::PosixFile>(std::move(d.base)), blocks);
  if (d.chunks) {
    std::unique_ptr<image::ChunkedSource> source = std::make_unique<image::ChunkedSource>(blocks, std::move(d.chunks));
    chunked = source.get();
    base = std::move(source);
  }
  std::vector<image::OverlayFiles> frozen;
  for (OverlayDescriptors& o : d.frozen) {
    if (!o.data_ro || !o.log_ro) return fail(ErrorKind::kInvalid, "frozen overlay " + o.id + " lacks a descriptor");
    o.data_rw.reset();
    o.log_rw.reset();
    frozen.push_back(files_of(std::move(o)));
  }
  std::optional<image::OverlayFiles> writable;
  if (d.writable && !d.read_only) {
    TRY(check_writable(*d.writable));
    writable = files_of(std::move(*d.writable));
  }
  auto stack =
      image::OverlayStack::open(std::move(base), blocks, std::move(frozen), std::move(writable), image::HostHistory::kSameBoot);
  if (!stack) return tl::unexpected(std::move(stack.error()).with_context("open disk " + d.id));
  return std::unique_ptr<Disk>(new Disk(std::move(d.id), chunked, std::move(*stack), d.read_only));
}

Status Disk::start_overlay(OverlayDescriptors overlay) {
  TRY(check_writable(overlay));
  return stack_->start_writable(files_of(std::move(overlay)));
}

Status Disk::attach_base(UniqueFd chunks) {
  if (!chunked_) return fail(ErrorKind::kConflict, "the base of disk " + id_ + " is not read over a chunk socket");
  chunked_->attach(std::move(chunks));
  return {};
}

Status Disk::replace_frozen(size_t first, size_t count, OverlayDescriptors merged) {
  return stack_->replace_frozen(first, count, files_of(std::move(merged)));
}

}  // namespace ramet::vmm
