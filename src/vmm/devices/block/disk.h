// vmm/devices/block/disk.h - one disk of a machine, as the composition sees it: the overlay stack from the daemon's descriptors
// and the virtio-blk device over it. Not here: the transport, messages.
//
// Fork, in this order:  transport.quiesce -> disk.freeze() -> fork(2)
//   parent:  disk.start_overlay(next one) if freeze() said true -> transport.resume
//   child:   transport.after_fork (first of all) -> disk.start_overlay(the child's, always), disk.attach_base(the child's, if
//            its base is chunked) -> transport.resume
// The writers of a frozen overlay are closed before the fork, so no child inherits one. An overlay that holds nothing is not
// frozen: the parent keeps it, and a child drops its copy of the descriptors in start_overlay() (or drop_overlay()).
// A chunked base (image/chunked_source.h) is read over a socket, which the event loop watches: tend_base() when it is readable.
// Thread: the event loop's, with the device quiesced where that is not the base's socket; reports from any.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "image/chunked_source.h"
#include "image/overlay_stack.h"
#include "vmm/devices/block/device.h"

namespace ramet::vmm {

struct OverlayDescriptors {
  std::string id;
  UniqueFd data_rw, data_ro, log_rw, log_ro;  // rw ones are empty for a frozen overlay
};

struct DiskDescription {
  std::string id;
  UniqueFd base;            // read-only; neither this nor the next: all zero
  UniqueFd chunks;          // a chunk socket bound to this disk
  uint64_t size_bytes = 0;  // multiple of 4096
  bool read_only = false;
  std::vector<OverlayDescriptors> frozen;      // oldest first
  std::optional<OverlayDescriptors> writable;  // none: a zygote or a read-only disk
};

class Disk {
 public:
  // Errors: kInvalid, kCorrupt, kIo.
  static Result<std::unique_ptr<Disk>> open(DiskDescription description);

  const std::string& id() const { return id_; }
  BlockDevice& device() { return device_; }
  const BlockMetrics& metrics() const { return device_.metrics(); }

  // Freezes the writable overlay. False: it holds nothing (or there is none) and stays.   Errors: kNoSpace, kIo, kConflict.
  Result<bool> freeze() { return stack_->freeze(); }
  Status start_overlay(OverlayDescriptors overlay);
  // Closes an untouched writable overlay without a new one (a child that only forks others).
  Status drop_overlay() { return stack_->drop_untouched(); }
  // A merged overlay in the place of some frozen ones.
  Status replace_frozen(size_t first, size_t count, OverlayDescriptors merged);

  // ---- A base that is read over a chunk socket.
  bool has_chunked_base() const { return chunked_ != nullptr; }
  // Another socket in the place of the present one, at any time. What waits for an answer is asked again.   Errors: kConflict
  // (its base is not chunked).
  Status attach_base(UniqueFd chunks);
  int base_socket() const { return chunked_->socket(); }
  // False: the daemon is gone, or broke the rules; there is nothing to watch until attach_base().
  bool tend_base() { return chunked_->tend(); }

  std::string writable_id() const { return stack_->writable_id(); }
  std::vector<std::string> frozen_ids() const { return stack_->frozen_ids(); }
  uint64_t overlay_blocks() const { return stack_->writable_data_blocks(); }
  // What a forked child keeps open: base (of a chunked one what is held of it) and overlays.
  std::vector<int> descriptors() const { return stack_->descriptors(); }

 private:
  Disk(std::string id, image::ChunkedSource* chunked, std::unique_ptr<image::OverlayStack> stack, bool read_only)
      : id_(std::move(id)),
        chunked_(chunked),
        stack_(std::move(stack)),
        device_(*stack_, {.id = id_, .read_only = read_only}) {}
  std::string id_;
  image::ChunkedSource* const chunked_;  // the stack's base, or null
  std::unique_ptr<image::OverlayStack> stack_;
  BlockDevice device_;
};

}  // namespace ramet::vmm
