#include "vmm/disk_setup.h"

namespace ramet::vmm {

Result<OverlayDescriptors> take_overlay(const OverlayFds& overlay, control::ReceivedFds& fds) {
  OverlayDescriptors out;
  out.id = overlay.id();
  TRY_ASSIGN(out.data_rw, fds.take_optional(overlay.data_rw_fd(), "overlay data"));
  TRY_ASSIGN(out.data_ro, fds.take(overlay.data_ro_fd(), "overlay data"));
  TRY_ASSIGN(out.log_rw, fds.take_optional(overlay.log_rw_fd(), "overlay log"));
  TRY_ASSIGN(out.log_ro, fds.take(overlay.log_ro_fd(), "overlay log"));
  return out;
}

// Null: a machine without a disk.
Result<std::unique_ptr<Disk>> open_disk(const Bootstrap& bootstrap, control::ReceivedFds& fds) {
  if (bootstrap.disks_size() == 0) return std::unique_ptr<Disk>();
  if (bootstrap.disks_size() > 1)
    return fail(ErrorKind::kUnsupported, std::to_string(bootstrap.disks_size()) + " disks, a machine has at most one");
  const DiskSetup& setup = bootstrap.disks(0);
  DiskDescription d;
  d.id = setup.id();
  d.size_bytes = setup.size_bytes();
  d.read_only = setup.read_only();
  TRY_ASSIGN(d.base, fds.take_optional(setup.base_fd(), "disk base"));
  TRY_ASSIGN(d.chunks, fds.take_optional(setup.chunk_fd(), "chunk socket"));
  for (const OverlayFds& overlay : setup.frozen()) {
    TRY_ASSIGN(OverlayDescriptors frozen, take_overlay(overlay, fds));
    d.frozen.push_back(std::move(frozen));
  }
  if (setup.has_writable()) {
    TRY_ASSIGN(d.writable, take_overlay(setup.writable(), fds));
  }
  return Disk::open(std::move(d));
}

}  // namespace ramet::vmm
