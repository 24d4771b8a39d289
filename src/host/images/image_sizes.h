// host/images/image_sizes.h - what images cost in the store, and how much of it they share. A frame is taken as a whole, the
// unit in which the store keeps bytes. Thread: any; looks up every chunk of every image.
#pragma once

#include <cstdint>
#include <vector>

#include "host/images/image_store.h"

namespace ramet::host {

struct ImageSizes {
  uint64_t stored_bytes = 0;  // of all frames it needs
  uint64_t unique_bytes = 0;  // of those that none of the others needs, and are not public: what removing it would free
};
// One for each, in their order.   Errors: those of the store.
Result<std::vector<ImageSizes>> measure_images(ImageStore& images, std::span<const std::shared_ptr<OpenImage>> all);

}  // namespace ramet::host
