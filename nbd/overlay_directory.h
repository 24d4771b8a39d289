// overlay_directory.h - the directory that keeps a server's private overlay across restarts:
//
//   lock            held by the one server that uses it
//   base            one line that says over what the overlay lies; over anything else its blocks would be nonsense
//   overlay.data    the blocks            docs/formats/overlay.md
//   overlay.log     which blocks are there
//
// Not here: the overlay itself (image/overlay_stack.h). Thread: a value; open() once. Owner: ServedDisk.
#pragma once

#include <string>

#include "base/unique_fd.h"
#include "image/overlay_stack.h"

namespace ramet::nbd {

struct OverlayDirectory {
  UniqueFd lock;
  image::OverlayFiles files;

  // Makes what is missing; what it made survives a crash of the host.   Requires: `base` without newline.
  // Errors: kConflict (another server uses it, or it lies over another base), kCorrupt (`base` is gone), those of the files.
  static Result<OverlayDirectory> open(const std::string& path, const std::string& base);
};

}  // namespace ramet::nbd
