#include "chunk/literal_table.h"

#include <cstring>
#include <mutex>

namespace ramet::chunk {
namespace {

uint64_t tag_of(const BlockPrint& print) {
  uint64_t tag;
  std::memcpy(&tag, print.bytes.data(), sizeof tag);
  return tag;
}

}  // namespace

void LiteralTable::add_frame(FrameId frame, std::vector<BlockPrint> prints) {
  for (uint32_t i = 0; i < prints.size(); i += kSampled) table_.insert_or_assign(tag_of(prints[i]), BlockRef{frame, i});
  frames_.insert_or_assign(frame, std::move(prints));
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
  std::vector<BlockPrint>& prints = frames_[frame];
  table_.insert_or_assign(tag_of(print), BlockRef{frame, static_cast<uint32_t>(prints.size())});
  prints.push_back(print);
}

std::vector<BlockPrint> LiteralTable::take(FrameId frame) {
  const std::unique_lock lock(mutex_);
  const auto it = frames_.find(frame);
  if (it == frames_.end()) return {};
  std::vector<BlockPrint> prints = std::move(it->second);
  for (const BlockPrint& print : prints) {
    const auto entry = table_.find(tag_of(print));
    if (entry != table_.end() && entry->second.frame == frame) table_.erase(entry);
  }
  frames_.erase(it);
  return prints;
}

size_t LiteralTable::frames() const {
  const std::shared_lock lock(mutex_);
  return frames_.size();
}

std::optional<BlockRef> LiteralTable::find(const BlockPrint& print) const {
  const std::shared_lock lock(mutex_);
  const auto it = table_.find(tag_of(print));
  return it == table_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<BlockPrint> LiteralTable::print_of(const BlockRef& ref) const {
  const std::shared_lock lock(mutex_);
  const auto it = frames_.find(ref.frame);
  if (it == frames_.end() || ref.block >= it->second.size()) return std::nullopt;
  return it->second[ref.block];
}

std::optional<BlockRef> LiteralTable::next(const BlockRef& ref) const {
  const std::shared_lock lock(mutex_);
  const auto it = frames_.find(ref.frame);
  if (it == frames_.end()) return std::nullopt;
  if (ref.block + 1 < it->second.size()) return BlockRef{ref.frame, ref.block + 1};
  const auto after = std::next(it);
  return after == frames_.end() ? std::nullopt : std::optional(BlockRef{after->first, 0});
}

std::optional<BlockRef> LiteralTable::previous(const BlockRef& ref) const {
  const std::shared_lock lock(mutex_);
  const auto it = frames_.find(ref.frame);
  if (it == frames_.end()) return std::nullopt;
  if (ref.block > 0) return BlockRef{ref.frame, ref.block - 1};
  if (it == frames_.begin()) return std::nullopt;
  const auto before = std::prev(it);
  return BlockRef{before->first, static_cast<uint32_t>(before->second.size()) - 1};
}

}  // namespace ramet::chunk
