// host/images/fill_policy.h - when a chunk is worth having whole in the cache. Its first blocks are answered by the frames that
// hold them; a chunk that is come back to is fetched whole, and read by its reader alone from then on. One that is touched once
// (a boot looks at each backup of a superblock) is not worth 16 MiB. Pure policy. Thread: one at a time.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/digest.h"

namespace ramet::host {

struct FillPolicy {
  uint32_t after_misses = 2;  // 1: at the first; 0: never
};

class MissCounter {
 public:
  explicit MissCounter(FillPolicy policy) : policy_(policy) {}
  // Another block of the chunk was asked for that is not in the cache. True: fetch it whole now.
  bool is_worth_filling(const Digest& chunk) {
    if (policy_.after_misses == 0) return false;
    if (misses_.size() >= kMost) misses_.clear();  // a hint: forgetting costs a miss
    uint32_t& misses = misses_[chunk];
    if (++misses < policy_.after_misses) return false;
    misses_.erase(chunk);
    return true;
  }

 private:
  static constexpr size_t kMost = 4096;
  const FillPolicy policy_;
  std::unordered_map<Digest, uint32_t, DigestHash> misses_;
};

}  // namespace ramet::host
