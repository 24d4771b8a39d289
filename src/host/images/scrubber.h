// host/images/scrubber.h - looks over a store that is in use, one pack at a time, again and again: damage shall be known before
// somebody needs what it hit. Not here: when (host_impl.h), all at once with a report (chunk/maintenance.h).
// Thread: one at a time.
#pragma once

#include <optional>

#include "host/images/image_store.h"

namespace ramet::host {

class Scrubber {
 public:
  explicit Scrubber(ImageStore& images) : images_(images) {}
  // The pack after the one before, by name; after the last one the first. How many of its frames are damaged.
  size_t next_pack();

 private:
  ImageStore& images_;
  std::optional<chunk::PackId> last_;
};

}  // namespace ramet::host
