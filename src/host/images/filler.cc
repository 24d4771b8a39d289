#include "host/images/filler.h"

#include <pthread.h>

#include "base/log.h"
#include "image/block.h"

namespace ramet::host {
namespace {
constexpr size_t kMostWishes = 256;
}

Filler::Filler(Fetcher& fetcher, chunk::ChunkCache& cache, ReadCounters& counters, Options options)
    : fetcher_(fetcher), cache_(cache), counters_(counters), options_(std::move(options)) {
  thread_ = std::thread([this] { loop(); });
  ::pthread_setname_np(thread_.native_handle(), "chunk-fill");
}

Filler::~Filler() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Filler::wish(const Digest& chunk) {
  const std::lock_guard lock(mutex_);
  if (wishes_.size() >= kMostWishes || !wished_.insert(chunk).second) return;
  wishes_.push_back(chunk);
  changed_.notify_all();
}

void Filler::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || wished_.empty(); });
}

void Filler::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !wishes_.empty(); });
    if (stop_) return;
    const Digest chunk = wishes_.front();
    wishes_.pop_front();
    lock.unlock();
    fill(chunk);
    lock.lock();
    wished_.erase(chunk);
    changed_.notify_all();
  }
}

void Filler::fill(const Digest& chunk) {
  if (!options_.admit(image::kChunkBytes)) return;
  const Result<std::vector<std::byte>> bytes = fetcher_.chunk(chunk);
  if (!bytes) {
    log_warn("chunk cache: " + bytes.error().to_string());
    return;
  }
  counters_.filled_bytes += fetcher_.stored_bytes(chunk).value_or(0);
  const Result<chunk::ChunkCache::Lease> filled = cache_.fill(chunk, *bytes);
  if (filled) {
    counters_.chunks_filled++;
  } else if (filled.error().kind() == ErrorKind::kNoSpace) {
    options_.cache_is_leased();
  } else {
    log_warn("chunk cache: " + filled.error().to_string());
  }
}

}  // namespace ramet::host
