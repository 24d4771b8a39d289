#include "chunk/literal_table.h"

#include <cstring>
#include <mutex>

namespace ramet::chunk {

size_t LiteralTable::Hash::operator()(const BlockPrint& print) const {
  size_t h;  // a print is as good a hash as any
  std::memcpy(&h, print.bytes.data(), sizeof h);
  return h;
}

LiteralTable::Number LiteralTable::place_for(FrameId id) {
  const auto [it, added] = places_.try_emplace(id, static_cast<Number>(frames_.size()));
  if (!added) return it->second;
  if (free_places_.empty()) {
    frames_.push_back({id, {}});
  } else {
    it->second = free_places_.back();
    free_places_.pop_back();
    frames_[it->second] = {id, {}};
  }
  return it->second;
}

// A frame that is known already stays as it is: its bytes are the same.
void LiteralTable::add_frame(FrameId id, std::vector<BlockPrint> prints) {
  const Number place = place_for(id);
  if (!frames_[place].prints.empty()) return;
  frames_[place].prints = std::move(prints);
  for (Number i = 0; i < frames_[place].prints.size(); i++) table_.insert(place * kFrameBlocks + i);
}

void LiteralTable::add(PackTail&& tail) {
  const std::unique_lock lock(mutex_);
  for (size_t f = 0; f < tail.frames.size(); f++) add_frame(tail.frames[f].id, std::move(tail.prints[f]));
}

void LiteralTable::put_back(FrameId frame, std::vector<BlockPrint> prints) {
  const std::unique_lock lock(mutex_);
  add_frame(frame, std::move(prints));
}

void LiteralTable::append(FrameId frame, const BlockPrint& print) {
  const std::unique_lock lock(mutex_);
  const Number place = place_for(frame);
  std::vector<BlockPrint>& prints = frames_[place].prints;
  prints.push_back(print);
  table_.insert(place * kFrameBlocks + static_cast<Number>(prints.size()) - 1);
}

std::vector<BlockPrint> LiteralTable::take(FrameId frame) {
  const std::unique_lock lock(mutex_);
  const auto it = places_.find(frame);
  if (it == places_.end()) return {};
  const Number place = it->second;
  for (const BlockPrint& print : frames_[place].prints) {
    const auto entry = table_.find(print);
    if (entry != table_.end() && *entry / kFrameBlocks == place) table_.erase(entry);
  }
  places_.erase(it);
  free_places_.push_back(place);
  return std::exchange(frames_[place].prints, {});
}

size_t LiteralTable::frames() const {
  const std::shared_lock lock(mutex_);
  return places_.size();
}

std::optional<BlockRef> LiteralTable::find(const BlockPrint& print) const {
  const std::shared_lock lock(mutex_);
  const auto it = table_.find(print);
  if (it == table_.end()) return std::nullopt;
  return BlockRef{frames_[*it / kFrameBlocks].id, *it % kFrameBlocks};
}

std::optional<BlockPrint> LiteralTable::print_of(const BlockRef& ref) const {
  const std::shared_lock lock(mutex_);
  const auto it = places_.find(ref.frame);
  if (it == places_.end() || ref.block >= frames_[it->second].prints.size()) return std::nullopt;
  return frames_[it->second].prints[ref.block];
}

std::optional<BlockRef> LiteralTable::next(const BlockRef& ref) const {
  const std::shared_lock lock(mutex_);
  const auto it = places_.find(ref.frame);
  if (it == places_.end()) return std::nullopt;
  if (ref.block + 1 < frames_[it->second].prints.size()) return BlockRef{ref.frame, ref.block + 1};
  const auto after = std::next(it);
  return after == places_.end() ? std::nullopt : std::optional(BlockRef{after->first, 0});
}

std::optional<BlockRef> LiteralTable::previous(const BlockRef& ref) const {
  const std::shared_lock lock(mutex_);
  const auto it = places_.find(ref.frame);
  if (it == places_.end()) return std::nullopt;
  if (ref.block > 0) return BlockRef{ref.frame, ref.block - 1};
  if (it == places_.begin()) return std::nullopt;
  const auto before = std::prev(it);
  return BlockRef{before->first, static_cast<uint32_t>(frames_[before->second].prints.size()) - 1};
}

}  // namespace ramet::chunk
