// host/images/scrubber.h - looks over a store that is in use, one pack at a time, again and again: damage shall be known before
// somebody needs what it hit. Packs that are in the bucket only are left alone: that would be all of them over the network,
// again and again, and what is read there is checked then. Not here: when (host_impl.h), all at once with a report
// (chunk/maintenance.h). Thread: one at a time.
#pragma once

#include <optional>

#include "host/images/image_store.h"

namespace ramet::host {

class Scrubber {
 public:
  explicit Scrubber(ImageStore& images) : images_(images) {}
  // The pack here after the one before, by name; after the last one the first. How many of its frames are damaged.
  size_t next_pack();

 private:
  std::optional<chunk::PackId> choose() const;
  size_t damaged_frames(const chunk::PackId& id);
  ImageStore& images_;
  std::optional<chunk::PackId> last_;
};

}  // namespace ramet::host
