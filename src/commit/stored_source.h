// commit/stored_source.h - the disk of an image as a source of blocks, straight out of the store. For work that goes through a
// disk chunk by chunk: it decodes whole chunks and keeps the last one. Not here: serving machines, which ask for less
// (host/images). Thread: as BlockSource, one chunk at a time. Owner: whoever made it; must not outlive its store.
#pragma once

#include <mutex>
#include <vector>

#include "commit/stored_manifest.h"
#include "image/source.h"

namespace ramet::commit {

class StoredSource final : public image::BlockSource {
 public:
  StoredSource(const chunk::Store& store, image::ManifestRoot root)
      : store_(store), manifest_(manifest_in(store, std::move(root))) {}

  uint64_t size_blocks() const override { return manifest_.root().blocks; }
  // Errors: also those of the store.
  Result<bool> read(image::BlockRange range, std::span<const iovec> to, image::Wait wait) const override;

 private:
  // With mutex_ held. Empty: zeros.
  Result<std::span<const std::byte>> chunk(uint64_t number) const;

  const chunk::Store& store_;
  mutable std::mutex mutex_;
  mutable image::Manifest manifest_;          // guarded by mutex_; its root never changes
  mutable Digest kept_name_ = image::kZeros;  // guarded by mutex_
  mutable std::vector<std::byte> kept_;       // guarded by mutex_: the bytes of kept_name_
};

}  // namespace ramet::commit
