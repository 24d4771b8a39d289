// host/images/fetcher.h - frames and chunks out of the store, checked; what is damaged, and cannot be had anew from a remote
// tier, is an error of the disk. Not here: keeping what was fetched (frame_cache.h, chunk/chunk_cache.h), which disk it is of.
// Thread: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "chunk/store.h"
#include "host/images/frame_cache.h"
#include "image/block.h"

namespace ramet::host {

struct ReadCounters {
  std::atomic<uint64_t> asks{0};            // answers given to readers
  std::atomic<uint64_t> frames{0};          // fetched for them
  std::atomic<uint64_t> fetched_bytes{0};   // of these frames, as stored
  std::atomic<uint64_t> distinct_bytes{0};  // the same, each frame once however often it was fetched
  std::atomic<uint64_t> chunks_filled{0};
  std::atomic<uint64_t> filled_bytes{0};   // of frames fetched to fill them, as stored
  std::atomic<uint64_t> checked_bytes{0};  // of packs, read to look them over (scrubber.h)
  std::atomic<uint64_t> failed{0};         // asks answered with an error
};

class Fetcher {
 public:
  Fetcher(chunk::Store& store, ReadCounters& counters) : store_(store), counters_(counters) {}

  // A frame of which these blocks are proven, all of it where that costs no more.   Requires: first < 32; what lies behind the
  // frame's end does not count.   Errors: kNotFound (a collection moved its blocks: ask the recipe again), kIo, kUnavailable.
  Result<FrameCache::FramePtr> frame(chunk::FrameId id, image::BlockRange wanted);
  // Whether these blocks of a frame that was fetched are right.   Requires: as above.
  bool prove(chunk::FrameId id, DecodedFrame& frame, image::BlockRange wanted) const;
  // The same, for nobody: counted as checked.
  Status check_frame(chunk::FrameId id);
  // The whole chunk, which has this digest.   Errors: kNotFound, kIo, kUnavailable.
  Result<std::vector<std::byte>> chunk(const Digest& digest);
  // Of all frames that the chunk needs.   Errors: kNotFound, kIo.
  Result<uint64_t> stored_bytes(const Digest& digest) const;

 private:
  Result<FrameCache::FramePtr> read(const chunk::FramePlace& place, chunk::FrameProof proof);
  void count(const chunk::FramePlace& place);
  std::unique_ptr<chunk::FrameDecoder> take_decoder();
  void give_back(std::unique_ptr<chunk::FrameDecoder> decoder);
  chunk::Store& store_;
  ReadCounters& counters_;
  std::mutex mutex_;
  std::unordered_set<chunk::FrameId> seen_;                 // guarded by mutex_: 8,192 per GiB read
  std::vector<std::unique_ptr<chunk::FrameDecoder>> idle_;  // guarded by mutex_: as many as ever read at once
};

}  // namespace ramet::host
