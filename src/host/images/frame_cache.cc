#include "host/images/frame_cache.h"

namespace ramet::host {

Result<FrameCache::FramePtr> FrameCache::get(chunk::FrameId id, const Fetch& fetch) {
  const std::shared_ptr<Slot> slot = slot_of(id);
  const std::lock_guard one_fetches(slot->fetching);
  if (slot->frame) return slot->frame;
  Result<FramePtr> frame = fetch();
  if (!frame) {
    forget(id, slot);
    return frame;
  }
  slot->frame = *std::move(frame);
  keep(id, slot, slot->frame->plain.size());
  return slot->frame;
}

void FrameCache::drop(chunk::FrameId id, const FramePtr& frame) {
  const std::shared_ptr<Slot> slot = slot_of(id);
  const std::lock_guard nobody_fetches(slot->fetching);
  if (!slot->frame || slot->frame == frame) forget(id, slot);
}

size_t FrameCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::shared_ptr<FrameCache::Slot> FrameCache::slot_of(chunk::FrameId id) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Slot>& slot = slots_[id];
  if (slot) {
    used_.splice(used_.end(), used_, slot->used_at);
    return slot;
  }
  slot = std::make_shared<Slot>();
  slot->used_at = used_.insert(used_.end(), id);
  return slot;
}

void FrameCache::keep(chunk::FrameId id, const std::shared_ptr<Slot>& slot, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto it = slots_.find(id);
  if (it == slots_.end() || it->second != slot) return;  // gone meanwhile: whoever waited has it
  slot->bytes = bytes;
  bytes_ += bytes;
  for (auto oldest = used_.begin(); bytes_ > max_bytes_ && oldest != used_.end();) {
    const auto old = slots_.find(*oldest);
    if (old->second->bytes == 0) {  // being fetched
      ++oldest;
      continue;
    }
    bytes_ -= old->second->bytes;
    slots_.erase(old);
    oldest = used_.erase(oldest);
  }
}

void FrameCache::forget(chunk::FrameId id, const std::shared_ptr<Slot>& slot) {
  const std::lock_guard lock(mutex_);
  const auto it = slots_.find(id);
  if (it == slots_.end() || it->second != slot) return;
  bytes_ -= slot->bytes;
  used_.erase(slot->used_at);
  slots_.erase(it);
}

}  // namespace ramet::host
