// host/images/open_image.h - an image that somebody uses: a machine that runs from it, a client that reads it. As long as it
// lives, no collection takes its chunks, whatever happens to its name (image_store.h). Not here: the bytes of its chunks.
// Thread: every method from many threads. Shared by all its users; the store knows it weakly.
#pragma once

#include <mutex>
#include <string>

#include "image/manifest.h"

namespace ramet::host {

// Whose names they are: users choose those of their images; a template's disk is named by its SHA-256, a snapshot's by its id.
enum class ImageSpace { kUser, kTemplate, kSnapshot };
struct ImageId {
  ImageSpace space = ImageSpace::kUser;
  std::string name;
  friend auto operator<=>(const ImageId&, const ImageId&) = default;
};

class OpenImage {
 public:
  OpenImage(ImageId id, image::Manifest manifest)
      : id_(std::move(id)), root_(manifest.root()), manifest_(std::move(manifest)) {}

  const ImageId& id() const { return id_; }
  const image::ManifestRoot& root() const { return root_; }
  uint64_t blocks() const { return root_.blocks; }
  uint64_t chunks() const { return image::chunks_of(root_.kind, root_.blocks); }
  // The last one may be shorter than the others.   Requires: number < chunks().
  uint64_t blocks_of(uint64_t number) const {
    const uint64_t full = image::chunk_blocks(root_.kind);
    return std::min(full, root_.blocks - number * full);
  }
  // kZeros for zeros.   Errors: kInvalid (no such chunk), those of the store.
  Result<Digest> chunk(uint64_t number) {
    const std::lock_guard lock(mutex_);
    return manifest_.chunk(number);
  }

 private:
  const ImageId id_;
  const image::ManifestRoot root_;
  std::mutex mutex_;          // also while a page of 256 digests is fetched, once each: all of this image's readers wait for it
  image::Manifest manifest_;  // guarded by mutex_
};

}  // namespace ramet::host
