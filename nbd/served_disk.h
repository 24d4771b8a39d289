// served_disk.h - parameters to an open disk: the base, from the daemon or from a file, and the private overlay over it.
// Not here: nbdkit. Thread: open() and close() from one thread, `bytes` from all. Owner: plugin.cc, one per process.
#pragma once

#include <memory>

#include "base/unique_fd.h"
#include "byte_disk.h"
#include "parameters.h"

namespace ramet::nbd {

struct ServedDisk {
  UniqueFd overlay_lock;  // invalid: read-only
  std::unique_ptr<ByteDisk> bytes;

  // Errors: kUnavailable (no daemon), kNotFound (no such image or file), those of OverlayDirectory and OverlayStack.
  static Result<ServedDisk> open(const Parameters& parameters);
  bool writable() const { return overlay_lock.valid(); }
};

}  // namespace ramet::nbd
