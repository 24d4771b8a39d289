#include "chunk/matcher.h"

#include <algorithm>
#include <unordered_map>

namespace ramet::chunk {
namespace {

using Matches = std::vector<std::optional<BlockRef>>;

Matches positions(const Recipe& recipe, size_t blocks) {
  Matches out;
  out.reserve(blocks);
  for (const Extent& e : recipe.extents)
    for (uint32_t i = 0; i < e.blocks && out.size() < blocks; i++)
      out.push_back(e.frame ? std::optional(BlockRef{*e.frame, e.first + i}) : std::nullopt);
  out.resize(blocks);
  return out;
}

class Matching {
 public:
  Matching(std::span<const BlockFacts> blocks, const Literals& literals)
      : blocks_(blocks), literals_(literals), found_(blocks.size()) {}

  void look_for_all(const Matches& in_parent) {
    for (size_t i = 0; i < blocks_.size(); i++) {
      if (blocks_[i].zero) continue;
      if (i > 0 && found_[i - 1] && accept(i, literals_.next(*found_[i - 1]))) continue;
      if (accept(i, in_parent[i])) continue;
      if (accept(i, literals_.find(blocks_[i].print()))) extend_backwards(i);
    }
  }

  void give_up_all_but(uint32_t frames) {
    std::unordered_map<FrameId, uint32_t> saved;
    for (const std::optional<BlockRef>& ref : found_)
      if (ref) saved[ref->frame]++;
    if (saved.size() <= frames) return;
    std::vector<std::pair<uint32_t, FrameId>> ranked;
    for (const auto& [frame, blocks] : saved) ranked.emplace_back(blocks, frame);
    std::sort(ranked.begin(), ranked.end(), std::greater<>());
    for (size_t i = frames; i < ranked.size(); i++) saved.erase(ranked[i].second);
    for (std::optional<BlockRef>& ref : found_)
      if (ref && !saved.contains(ref->frame)) ref.reset();
  }

  Matches take() { return std::move(found_); }

 private:
  bool accept(size_t i, const std::optional<BlockRef>& ref) {
    if (!ref || literals_.print_of(*ref) != blocks_[i].print()) return false;
    found_[i] = ref;
    return true;
  }
  void extend_backwards(size_t i) {
    while (i > 0 && !found_[i - 1] && !blocks_[i - 1].zero && accept(i - 1, literals_.previous(*found_[i]))) i--;
  }

  const std::span<const BlockFacts> blocks_;
  const Literals& literals_;
  Matches found_;
};

}  // namespace

std::vector<BlockFacts> facts_of(std::span<const std::byte> chunk) {
  std::vector<BlockFacts> out;
  out.reserve(chunk.size() / kBlockBytes);
  for (const Digest& digest : block_digests(chunk)) out.push_back({digest == kZeroBlockDigest, digest});
  return out;
}

std::vector<std::optional<BlockRef>> match(std::span<const BlockFacts> blocks, const Recipe* parent, const Literals& literals,
                                           MatchLimits limits) {
  Matching matching(blocks, literals);
  matching.look_for_all(parent ? positions(*parent, blocks.size()) : Matches(blocks.size()));
  matching.give_up_all_but(limits.max_frames);
  return matching.take();
}

}  // namespace ramet::chunk
