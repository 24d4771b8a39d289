#include "host/images/frame_cache.h"

namespace ramet::host {

Result<FrameCache::Bytes> FrameCache::get(chunk::FrameId id, const Fetch& fetch) {
  const std::shared_ptr<Slot> slot = slot_of(id);
  const std::lock_guard one_fetches(slot->fetching);
  if (slot->bytes) return slot->bytes;
  Result<std::vector<std::byte>> bytes = fetch();
  if (!bytes) {
    forget(id, slot);
    return tl::unexpected<Error>(std::move(bytes).error());
  }
  slot->bytes = std::make_shared<const std::vector<std::byte>>(*std::move(bytes));
  keep(id, slot, slot->bytes->size());
  return slot->bytes;
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
  sizes_[id] = bytes;
  bytes_ += bytes;
  for (auto oldest = used_.begin(); bytes_ > max_bytes_ && oldest != used_.end();) {
    const auto size = sizes_.find(*oldest);
    if (size == sizes_.end()) {  // being fetched
      ++oldest;
      continue;
    }
    bytes_ -= size->second;
    sizes_.erase(size);
    slots_.erase(*oldest);
    oldest = used_.erase(oldest);
  }
}

void FrameCache::forget(chunk::FrameId id, const std::shared_ptr<Slot>& slot) {
  const std::lock_guard lock(mutex_);
  const auto it = slots_.find(id);
  if (it == slots_.end() || it->second != slot) return;
  used_.erase(slot->used_at);
  slots_.erase(it);
}

}  // namespace ramet::host
