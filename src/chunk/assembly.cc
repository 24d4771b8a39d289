#include "chunk/assembly.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "base/checked.h"
#include "chunk/pack.h"

namespace ramet::chunk {
namespace {

// Larger reads save nothing more.
constexpr size_t kMaxReadBytes = 1u << 20;

std::span<std::byte> blocks_of(std::span<std::byte> bytes, size_t first, size_t count) {
  return bytes.subspan(first * kBlockBytes, count * kBlockBytes);
}

}  // namespace

Status Assembly::run(const Recipe& recipe, uint32_t first_block, std::span<std::byte> out, FrameProof proof) {
  const std::vector<Piece> pieces = pieces_of(recipe, first_block, out);
  TRY_ASSIGN(const std::vector<Part> parts, parts_of(pieces));
  for (size_t first = 0; first < parts.size();) {
    const FramePlace& start = parts[first].place;
    size_t end = first + 1;
    uint64_t reached = start.entry.offset + start.entry.stored_bytes;
    while (end < parts.size() && parts[end].place.pack == start.pack && parts[end].place.entry.offset == reached &&
           reached + parts[end].place.entry.stored_bytes - start.entry.offset <= kMaxReadBytes)
      reached += parts[end++].place.entry.stored_bytes;
    const std::span<const Part> together = std::span(parts).subspan(first, end - first);
    TRY(read_or_refetch(*parts[first].packs, start.pack, [&] { return read_together(together, out, proof); }));
    first = end;
  }
  return {};
}

// Literals, those of one frame together. Zeros are written at once.
std::vector<Assembly::Piece> Assembly::pieces_of(const Recipe& recipe, uint32_t first_block, std::span<std::byte> out) const {
  std::vector<Piece> pieces;
  const uint32_t end_block = first_block + static_cast<uint32_t>(out.size() / kBlockBytes);
  uint32_t at = 0;
  for (const Extent& e : recipe.extents) {
    const uint32_t begin = std::max(at, first_block), end = std::min(at + e.blocks, end_block);
    if (begin < end) {
      const size_t to = begin - first_block;
      if (e.frame)
        pieces.push_back({*e.frame, e.first + begin - at, end - begin, to});
      else
        std::ranges::fill(blocks_of(out, to, end - begin), std::byte{0});
    }
    at += e.blocks;
  }
  std::ranges::stable_sort(pieces, {}, &Piece::frame);
  return pieces;
}

// Those of the public store are the last ones.
Result<std::vector<FramePlace>> Assembly::places_of(std::span<const FrameId> sorted) const {
  const auto middle = std::ranges::lower_bound(sorted, kCommonFrame);
  TRY_ASSIGN(std::vector<FramePlace> places, own_.index.frames({sorted.begin(), middle}));
  if (middle == sorted.end()) return places;
  if (!common_) return fail(ErrorKind::kCorrupt, "a recipe names frames of a public store, and there is none");
  std::vector<FrameId> ids(middle, sorted.end());
  for (FrameId& id : ids) id &= ~kCommonFrame;
  TRY_ASSIGN(const std::vector<FramePlace> common, common_->index.frames(ids));
  places.insert(places.end(), common.begin(), common.end());
  return places;
}

// In the order in which they lie in the packs.
Result<std::vector<Assembly::Part>> Assembly::parts_of(std::span<const Piece> pieces) const {
  std::vector<FrameId> ids;
  std::vector<Part> parts;
  for (size_t first = 0; first < pieces.size();) {
    size_t end = first + 1;
    while (end < pieces.size() && pieces[end].frame == pieces[first].frame) end++;
    ids.push_back(pieces[first].frame);
    const bool common = common_ && is_common(pieces[first].frame);
    parts.push_back({{}, common ? &common_->packs : &own_.packs, pieces.subspan(first, end - first)});
    first = end;
  }
  TRY_ASSIGN(const std::vector<FramePlace> places, places_of(ids));
  for (size_t i = 0; i < parts.size(); i++) parts[i].place = places[i];
  std::ranges::sort(parts, {}, [](const Part& p) { return std::tie(p.place.pack, p.place.entry.offset); });
  return parts;
}

Status Assembly::read_together(std::span<const Part> parts, std::span<std::byte> out, FrameProof proof) {
  const FramePlace &first = parts.front().place, &last = parts.back().place;
  const size_t bytes = last.entry.offset + last.entry.stored_bytes - first.entry.offset;
  if (stored_.size() < bytes) stored_.resize(bytes);
  const std::span<std::byte> stored = std::span(stored_).first(bytes);
  TRY(parts.front().packs->read(first.pack, first.entry.offset, stored));
  for (const Part& part : parts) {
    const FrameEntry& entry = part.place.entry;
    Status placed = place(part, stored.subspan(entry.offset - first.entry.offset, entry.stored_bytes), out, proof);
    if (!placed) return tl::unexpected<Error>(std::move(placed).error().with_context("pack " + to_hex(part.place.pack)));
  }
  return {};
}

Status Assembly::place(const Part& part, std::span<const std::byte> stored, std::span<std::byte> out, FrameProof proof) {
  const FrameEntry& entry = part.place.entry;
  for (const Piece& p : part.pieces)
    if (!range_within(p.from, p.blocks, entry.blocks))
      return fail(ErrorKind::kCorrupt, "a recipe uses blocks that frame " + std::to_string(entry.id) + " does not have");
  if (part.pieces.size() == 1 && part.pieces[0].blocks == entry.blocks)
    return decoder_.decode(entry, stored, blocks_of(out, part.pieces[0].to, entry.blocks), proof);
  plain_.resize(kMaxFrameBytes);
  const std::span<std::byte> plain = blocks_of(plain_, 0, entry.blocks);
  TRY(decoder_.decode(entry, stored, plain, proof));
  for (const Piece& p : part.pieces)
    std::ranges::copy(blocks_of(plain, p.from, p.blocks), blocks_of(out, p.to, p.blocks).begin());
  return {};
}

}  // namespace ramet::chunk
