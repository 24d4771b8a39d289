#include "host/images/image_sizes.h"

#include <unordered_map>

#include "commit/live_chunks.h"

namespace ramet::host {
namespace {

using Frames = std::unordered_set<chunk::FrameId>;

Result<Frames> frames_of(const chunk::Store& store, const OpenImage& image) {
  std::unordered_set<Digest, DigestHash> needed;
  TRY(commit::add_needed(store, image.root(), needed));
  Frames frames;
  for (const Digest& name : needed) {
    TRY_ASSIGN(const chunk::Recipe recipe, store.recipe(name));
    for (const chunk::FrameId id : recipe.frames()) frames.insert(id);
  }
  return frames;
}

Result<std::vector<ImageSizes>> measure(const chunk::Store& store, std::span<const std::shared_ptr<OpenImage>> all) {
  std::vector<Frames> frames;
  std::unordered_map<chunk::FrameId, size_t> users;
  for (const std::shared_ptr<OpenImage>& image : all) {
    TRY_ASSIGN(Frames one, frames_of(store, *image));
    for (const chunk::FrameId id : one) users[id]++;
    frames.push_back(std::move(one));
  }
  std::vector<ImageSizes> sizes(all.size());
  for (size_t i = 0; i < all.size(); i++)
    for (const chunk::FrameId id : frames[i]) {
      TRY_ASSIGN(const chunk::FramePlace place, store.frame(id));
      sizes[i].stored_bytes += place.entry.stored_bytes;
      if (users.at(id) == 1 && !chunk::is_common(id)) sizes[i].unique_bytes += place.entry.stored_bytes;
    }
  return sizes;
}

}  // namespace

// As for readers (disk_reader.cc): a collection may move blocks between two looks, and the next recipes know where they are.
Result<std::vector<ImageSizes>> measure_images(ImageStore& images, std::span<const std::shared_ptr<OpenImage>> all) {
  for (int attempt = 1;; attempt++) {
    Result<std::vector<ImageSizes>> sizes = measure(images.chunks(), all);
    if (sizes || sizes.error().kind() != ErrorKind::kNotFound || attempt == 3) return sizes;
  }
}

}  // namespace ramet::host
