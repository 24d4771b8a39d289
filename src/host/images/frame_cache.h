// host/images/frame_cache.h - the frames decoded last, so that one fetch serves all neighbours of a 4 KiB read. A frame never
// changes and its id is never used again, so nothing here can be out of date. Not here: fetching.
// Thread: every method from many threads; a frame is fetched once, whoever waits for it. A resource.
#pragma once

#include <atomic>
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

struct DecodedFrame {
  std::vector<std::byte> plain;          // never changes
  std::atomic<uint32_t> proven_bits{0};  // of blocks that are known to be what was stored; the others may be damaged
};
static_assert(chunk::kFrameBlocks <= 32);

class FrameCache {
 public:
  using FramePtr = std::shared_ptr<DecodedFrame>;  // shared with answers that are under way
  using Fetch = std::function<Result<FramePtr>()>;

  explicit FrameCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Errors: those of `fetch`, of which nothing is remembered.
  Result<FramePtr> get(chunk::FrameId id, const Fetch& fetch);
  // The next one to ask has it fetched, unless another one than this is here by now.
  void drop(chunk::FrameId id, const FramePtr& frame);
  size_t bytes() const;

 private:
  struct Slot {
    std::mutex fetching;  // held while it is fetched
    FramePtr frame;       // guarded by fetching; set once
    std::list<chunk::FrameId>::iterator used_at;
    size_t bytes = 0;  // guarded by the cache's mutex_; of one that is fetched
  };
  std::shared_ptr<Slot> slot_of(chunk::FrameId id);
  void keep(chunk::FrameId id, const std::shared_ptr<Slot>& slot, size_t bytes);
  void forget(chunk::FrameId id, const std::shared_ptr<Slot>& slot);

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::unordered_map<chunk::FrameId, std::shared_ptr<Slot>> slots_;  // guarded by mutex_; shared with whoever waits for it
  std::list<chunk::FrameId> used_;                                   // guarded by mutex_; least recently first
  size_t bytes_ = 0;                                                 // guarded by mutex_
};

}  // namespace ramet::host
