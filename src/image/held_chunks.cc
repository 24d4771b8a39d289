#include "image/held_chunks.h"

#include <algorithm>

namespace ramet::image {
namespace {
constexpr auto kRelaxed = std::memory_order_relaxed;
}

HeldChunks::HeldChunks(uint64_t disk_blocks)
    : blocks_(disk_blocks),
      chunks_((disk_blocks + kChunkBlocks - 1) / kChunkBlocks),
      index_(std::make_unique<std::atomic<uint16_t>[]>(chunks_)) {}

HeldChunks::Pin HeldChunks::find(uint64_t chunk) const {
  const uint16_t entry = index_[chunk].load(std::memory_order_acquire);
  if (entry == kUnknown || entry == kZero) return Pin(nullptr);
  Slot& slot = slots_[entry - 1];
  if (!slot.pin()) return Pin(nullptr);
  Pin pin(&slot);
  if (slot.chunk != chunk) return Pin(nullptr);  // another's by now
  const uint64_t now = arrivals_.load(kRelaxed);
  if (slot.used.load(kRelaxed) != now) slot.used.store(now, kRelaxed);
  return pin;
}

bool HeldChunks::is_held(uint64_t chunk) const {
  const uint16_t entry = index_[chunk].load(kRelaxed);
  return entry != kUnknown && entry != kZero;
}

HeldChunks::Slot* HeldChunks::empty_slot() const {
  for (Slot& slot : slots_)
    if (slot.state.load(kRelaxed) & kEmpty) return &slot;
  return nullptr;
}

// Of those that nobody reads.
HeldChunks::Slot* HeldChunks::least_recently_used() const {
  Slot* oldest = nullptr;
  for (Slot& slot : slots_)
    if (slot.state.load(kRelaxed) == 0 && (!oldest || slot.used.load(kRelaxed) < oldest->used.load(kRelaxed))) oldest = &slot;
  return oldest;
}

// Requires: no reader can use the slot, nor find it.
UniqueFd HeldChunks::take_out(Slot& slot) {
  count_--;
  return std::move(slot.fd);
}

bool HeldChunks::add(uint64_t chunk, UniqueFd fd) {
  const std::lock_guard lock(mutex_);
  Slot* const slot = is_held(chunk) ? nullptr : empty_slot();
  if (!slot) return false;
  slot->chunk = chunk;
  slot->fd = std::move(fd);
  slot->used.store(arrivals_.fetch_add(1, kRelaxed) + 1, kRelaxed);
  slot->state.fetch_and(~kEmpty, std::memory_order_release);  // readers who came in vain may be counted in it
  index_[chunk].store(static_cast<uint16_t>(slot - slots_.data() + 1), std::memory_order_release);
  count_++;
  return true;
}

bool HeldChunks::remove(uint64_t chunk) {
  UniqueFd closing;
  std::unique_lock lock(mutex_);
  if (!is_held(chunk)) return false;
  Slot& slot = slots_[index_[chunk].load(kRelaxed) - 1];
  slot.state.fetch_or(kWanted, kRelaxed);
  index_[chunk].store(kUnknown, kRelaxed);
  lock.unlock();  // reads may take a while
  for (uint32_t state; (state = slot.state.load(std::memory_order_acquire)) & kReaders;) slot.state.wait(state, kRelaxed);
  lock.lock();
  closing = take_out(slot);
  slot.state.fetch_or(kEmpty, std::memory_order_release);
  slot.state.fetch_and(~kWanted, std::memory_order_release);
  return true;
}

std::vector<uint64_t> HeldChunks::trim(size_t most) {
  std::vector<uint64_t> out;
  std::vector<UniqueFd> closing;
  const std::lock_guard lock(mutex_);
  while (count_ > most) {
    Slot* const slot = least_recently_used();
    if (!slot) break;
    uint32_t idle = 0;
    if (!slot->state.compare_exchange_strong(idle, kEmpty, std::memory_order_acquire)) continue;
    index_[slot->chunk].store(kUnknown, kRelaxed);
    out.push_back(slot->chunk);
    closing.push_back(take_out(*slot));
  }
  return out;
}

void HeldChunks::mark_zero(BlockRange range) {
  const uint64_t first = (range.first + kChunkBlocks - 1) / kChunkBlocks;
  const uint64_t end = range.end() == blocks_ ? chunks_ : range.end() / kChunkBlocks;
  const std::lock_guard lock(mutex_);
  for (uint64_t chunk = first; chunk < end; chunk++)
    if (!is_held(chunk)) index_[chunk].store(kZero, kRelaxed);
}

std::vector<uint64_t> HeldChunks::held() const {
  std::vector<uint64_t> out;
  const std::lock_guard lock(mutex_);
  for (const Slot& slot : slots_)
    if (!(slot.state.load(kRelaxed) & (kEmpty | kWanted))) out.push_back(slot.chunk);
  std::sort(out.begin(), out.end());
  return out;
}

void HeldChunks::append_descriptors(std::vector<int>& out) const {
  const std::lock_guard lock(mutex_);
  for (const Slot& slot : slots_)
    if (slot.fd) out.push_back(slot.fd.get());
}

}  // namespace ramet::image
