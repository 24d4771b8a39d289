// host/images/frame_cache.h - the frames decoded last, so that one fetch serves all neighbours of a 4 KiB read. A frame never
// changes and its id is never used again, so nothing here can be out of date. Not here: fetching.
// Thread: every method from many threads; a frame is fetched once, whoever waits for it. A resource.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "chunk/recipe.h"

namespace ramet::host {

class FrameCache {
 public:
  // Of a frame's plain blocks; shared with answers that are under way.
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;
  using Fetch = std::function<Result<std::vector<std::byte>>()>;

  explicit FrameCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Errors: those of `fetch`, of which nothing is remembered.
  Result<Bytes> get(chunk::FrameId id, const Fetch& fetch);
  size_t bytes() const;

 private:
  struct Slot {
    std::mutex fetching;  // held while it is fetched
    Bytes bytes;          // guarded by fetching; set once
    std::list<chunk::FrameId>::iterator used_at;
  };
  std::shared_ptr<Slot> slot_of(chunk::FrameId id);
  void keep(chunk::FrameId id, const std::shared_ptr<Slot>& slot, size_t bytes);
  void forget(chunk::FrameId id, const std::shared_ptr<Slot>& slot);

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::unordered_map<chunk::FrameId, std::shared_ptr<Slot>> slots_;  // guarded by mutex_; shared with whoever waits for it
  std::list<chunk::FrameId> used_;                                   // guarded by mutex_; least recently first
  std::unordered_map<chunk::FrameId, size_t> sizes_;                 // guarded by mutex_; of those that are fetched
  size_t bytes_ = 0;                                                 // guarded by mutex_
};

}  // namespace ramet::host
