// host/images/filler.h - fetches whole chunks into the cache, in the background: one named thread, the oldest wish first.
// Advice only: what does not fit, or fails, is left; readers get frames then. Not here: which chunks (fill_policy.h).
// Thread: every method from any. Owner: DiskReader.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "chunk/chunk_cache.h"
#include "host/images/fetcher.h"

namespace ramet::host {

class Filler {
 public:
  struct Options {
    std::function<Status(uint64_t bytes)> admit;  // room on the disk
    std::function<void()> cache_is_leased;        // nothing fits because readers hold it all; from the thread
  };
  Filler(Fetcher& fetcher, chunk::ChunkCache& cache, ReadCounters& counters, Options options);
  ~Filler();
  Filler(const Filler&) = delete;
  Filler& operator=(const Filler&) = delete;

  void wish(const Digest& chunk);
  // Until all wishes were looked at (tests).
  void drain();

 private:
  void loop();
  void fill(const Digest& chunk);

  Fetcher& fetcher_;
  chunk::ChunkCache& cache_;
  ReadCounters& counters_;
  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Digest> wishes_;                      // guarded by mutex_
  std::unordered_set<Digest, DigestHash> wished_;  // guarded by mutex_: the same, and the one at hand
  bool stop_ = false;                              // guarded by mutex_
  std::thread thread_;
};

}  // namespace ramet::host
