#include "chunk/recipe.h"

#include <algorithm>

#include "base/file.h"
#include "chunk/varint.h"

namespace ramet::chunk {
namespace {

bool joins(const Extent& a, const Extent& b) {
  if (a.frame != b.frame) return false;
  return !a.frame || a.first + a.blocks == b.first;
}

}  // namespace

uint32_t Recipe::blocks() const {
  uint32_t sum = 0;
  for (const Extent& e : extents) sum += e.blocks;
  return sum;
}

std::vector<FrameId> Recipe::frames() const {
  std::vector<FrameId> out;
  for (const Extent& e : extents)
    if (e.frame && std::find(out.begin(), out.end(), *e.frame) == out.end()) out.push_back(*e.frame);
  return out;
}

void Recipe::append(const Extent& extent) {
  if (!extents.empty() && joins(extents.back(), extent))
    extents.back().blocks += extent.blocks;
  else
    extents.push_back(extent);
}

std::string encode_recipe(const Recipe& recipe) {
  std::string out;
  const std::vector<FrameId> frames = recipe.frames();
  append_varint(out, frames.size());
  FrameId previous = 0;
  for (const FrameId id : frames) {
    // Folded, so that a small step backwards is a small number too.
    const int64_t step = static_cast<int64_t>(id - previous);
    append_varint(out, static_cast<uint64_t>(step) << 1 ^ static_cast<uint64_t>(step >> 63));
    previous = id;
  }
  for (const Extent& e : recipe.extents) {
    append_varint(out, uint64_t{e.blocks} << 1 | (e.frame ? 1 : 0));
    if (!e.frame) continue;
    append_varint(out, static_cast<uint64_t>(std::find(frames.begin(), frames.end(), *e.frame) - frames.begin()));
    out += static_cast<char>(e.first);
  }
  return out;
}

std::optional<Recipe> decode_recipe(std::span<const std::byte> bytes) {
  Decoder in(bytes);
  const std::optional<uint64_t> count = in.varint();
  if (!count || *count > kMaxChunkBlocks) return std::nullopt;
  std::vector<FrameId> frames;
  FrameId previous = 0;
  for (uint64_t i = 0; i < *count; i++) {
    const std::optional<uint64_t> folded = in.varint();
    if (!folded) return std::nullopt;
    previous += *folded >> 1 ^ (~(*folded & 1) + 1);
    frames.push_back(previous);
  }
  Recipe recipe;
  uint32_t blocks = 0;
  while (!in.at_end()) {
    const std::optional<uint64_t> head = in.varint();
    if (!head || *head >> 1 == 0 || *head >> 1 > kMaxChunkBlocks - blocks) return std::nullopt;
    Extent e{.blocks = static_cast<uint32_t>(*head >> 1), .frame = std::nullopt, .first = 0};
    blocks += e.blocks;
    if (*head & 1) {
      const std::optional<uint64_t> index = in.varint();
      const std::optional<uint8_t> first = index ? in.byte() : std::nullopt;
      if (!first || *index >= frames.size() || *first + e.blocks > kFrameBlocks) return std::nullopt;
      e.frame = frames[*index];
      e.first = *first;
    }
    recipe.extents.push_back(e);
  }
  // One form only: extents that should have been joined, a frame listed twice, unused or out of order would be others.
  if (std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()) != encode_recipe(recipe)) return std::nullopt;
  for (size_t i = 1; i < recipe.extents.size(); i++)
    if (joins(recipe.extents[i - 1], recipe.extents[i])) return std::nullopt;
  return recipe;
}

}  // namespace ramet::chunk
