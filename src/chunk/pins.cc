#include "chunk/pins.h"

#include <algorithm>

namespace ramet::chunk {
namespace {

template <class Map, class Keys>
void uncount_all(Map& counts, const Keys& keys) {
  for (const auto& key : keys)
    if (const auto it = counts.find(key); it != counts.end() && --it->second == 0) counts.erase(it);
}

}  // namespace

Pins::Holder::Chunk Pins::Holder::hold(const Digest& digest) {
  const std::lock_guard lock(pins_.mutex_);
  if (held_.chunks.insert(digest).second) pins_.chunks_[digest]++;
  return pins_.condemned_.contains(digest) ? Chunk::kIsCondemned : Chunk::kMayBeUsed;
}

void Pins::Holder::hold(std::span<const FrameId> frames) {
  const std::lock_guard lock(pins_.mutex_);
  for (const FrameId frame : frames)
    if (held_.frames.insert(frame).second) pins_.frames_[frame]++;
}

void Pins::let_go(Holder::Held held) {
  const std::lock_guard lock(mutex_);
  if (collecting_)
    put_off_.push_back(std::move(held));
  else
    uncount(held);
}

void Pins::uncount(const Holder::Held& held) {
  uncount_all(chunks_, held.chunks);
  uncount_all(frames_, held.frames);
}

Pins::Collecting::Collecting(Pins& pins) : pins_(pins) {
  const std::lock_guard lock(pins_.mutex_);
  pins_.collecting_ = true;
}

Pins::Collecting::~Collecting() {
  const std::lock_guard lock(pins_.mutex_);
  pins_.collecting_ = false;
  pins_.condemned_.clear();
  for (const Holder::Held& held : pins_.put_off_) pins_.uncount(held);
  pins_.put_off_.clear();
}

bool Pins::Collecting::condemn(const Digest& digest) {
  const std::lock_guard lock(pins_.mutex_);
  if (pins_.chunks_.contains(digest)) return false;
  pins_.condemned_.insert(digest);
  return true;
}

bool Pins::Collecting::condemn(std::span<const FrameId> frames, const std::function<void()>& withdraw) {
  const std::lock_guard lock(pins_.mutex_);
  if (std::ranges::any_of(frames, [&](FrameId f) { return pins_.frames_.contains(f); })) return false;
  withdraw();
  return true;
}

}  // namespace ramet::chunk
