#include "range_lock.h"

#include <algorithm>

namespace ramet::nbd {

RangeLock::Hold::Hold(RangeLock& lock, image::BlockRange range, Mode mode) : lock_(lock) {
  std::unique_lock guard(lock_.mutex_);
  lock_.waiting_++;
  lock_.released_.wait(guard, [&] { return lock_.is_free(range, mode); });
  lock_.waiting_--;
  entry_ = lock_.held_.insert(lock_.held_.end(), {range, mode});
}

RangeLock::Hold::~Hold() {
  const std::lock_guard guard(lock_.mutex_);
  lock_.held_.erase(entry_);
  if (lock_.waiting_ > 0) lock_.released_.notify_all();
}

bool RangeLock::is_free(image::BlockRange range, Mode mode) const {
  return std::none_of(held_.begin(), held_.end(), [&](const Hold::Entry& other) {
    const bool overlap = range.first < other.range.end() && other.range.first < range.end();
    return overlap && (mode == Mode::kAlone || other.mode == Mode::kAlone);
  });
}

}  // namespace ramet::nbd
