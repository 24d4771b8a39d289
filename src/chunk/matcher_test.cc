// What is found again: whole runs from one known block, the parent's blocks without a table, nothing that is not equal.
#include "chunk/matcher.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

namespace ramet::chunk {
namespace {

// A literal is its number: block n of frame f was stored after block n - 1, frames follow each other.
class ShelfOfLiterals final : public Literals {
 public:
  // Blocks with these contents, in frames of kFrameBlocks; every `known_every`th is in the table.
  ShelfOfLiterals(uint64_t first_content, uint32_t count, uint32_t known_every = 1) {
    for (uint32_t i = 0; i < count; i++) {
      const BlockRef ref{100 + i / kFrameBlocks, i % kFrameBlocks};
      prints_[ref] = print(first_content + i);
      if (i % known_every == known_every - 1) table_[print(first_content + i)] = ref;
    }
  }
  static BlockPrint print(uint64_t content) { return chunk::print_of(digest(content)); }
  static Digest digest(uint64_t content) {
    Digest d;
    std::copy_n(reinterpret_cast<const std::byte*>(&content), sizeof content, d.bytes.begin());
    return d;
  }
  void forget(const BlockRef& ref) { prints_.erase(ref); }
  void lie(uint64_t content, const BlockRef& ref) { table_[print(content)] = ref; }
  mutable int lookups = 0;

  std::optional<BlockRef> find(const BlockPrint& p) const override {
    lookups++;
    const auto it = table_.find(p);
    return it == table_.end() ? std::nullopt : std::optional(it->second);
  }
  std::optional<BlockPrint> print_of(const BlockRef& ref) const override {
    const auto it = prints_.find(ref);
    return it == prints_.end() ? std::nullopt : std::optional(it->second);
  }
  std::optional<BlockRef> next(const BlockRef& ref) const override {
    const auto it = prints_.upper_bound(ref);
    return it == prints_.end() ? std::nullopt : std::optional(it->first);
  }
  std::optional<BlockRef> previous(const BlockRef& ref) const override {
    const auto it = prints_.lower_bound(ref);
    return it == prints_.begin() ? std::nullopt : std::optional(std::prev(it)->first);
  }

 private:
  std::map<BlockRef, BlockPrint> prints_;
  std::map<BlockPrint, BlockRef> table_;
};

std::vector<BlockFacts> contents(std::initializer_list<uint64_t> numbers) {
  std::vector<BlockFacts> out;
  for (const uint64_t n : numbers) out.push_back({n == 0, ShelfOfLiterals::digest(n)});
  return out;
}
std::vector<BlockFacts> run_of(uint64_t first, uint32_t count) {
  std::vector<BlockFacts> out;
  for (uint32_t i = 0; i < count; i++) out.push_back({false, ShelfOfLiterals::digest(first + i)});
  return out;
}
size_t found(const std::vector<std::optional<BlockRef>>& matches) {
  return static_cast<size_t>(std::count_if(matches.begin(), matches.end(), [](const auto& m) { return m.has_value(); }));
}

TEST(Facts, ZerosAreToldFromEverythingElse) {
  std::vector<std::byte> chunk(3 * kBlockBytes);
  chunk[2 * kBlockBytes - 1] = std::byte{1};
  const std::vector<BlockFacts> facts = facts_of(chunk);
  EXPECT_TRUE(facts[0].zero && facts[2].zero);
  EXPECT_FALSE(facts[1].zero);
  EXPECT_EQ(facts[1].print(), print_of(std::span(chunk).subspan(kBlockBytes, kBlockBytes)));
}

TEST(Match, ARunIsFoundFromOneKnownBlock) {
  const ShelfOfLiterals shelf(1000, 100, 64);  // the table knows the 64th block only
  const std::vector<std::optional<BlockRef>> m = match(run_of(1000, 100), nullptr, shelf, {});
  EXPECT_EQ(found(m), 100u);
  EXPECT_EQ(*m[0], (BlockRef{100, 0}));
  EXPECT_EQ(*m[99], (BlockRef{103, 3}));
}

TEST(Match, ZerosAndUnknownBlocksAreNotMatched) {
  const ShelfOfLiterals shelf(10, 4);
  const std::vector<std::optional<BlockRef>> m = match(contents({0, 12, 99, 0, 10}), nullptr, shelf, {});
  EXPECT_FALSE(m[0] || m[2] || m[3]);
  EXPECT_EQ(*m[1], (BlockRef{100, 2}));
  EXPECT_EQ(*m[4], (BlockRef{100, 0}));
}

TEST(Match, TheParentsBlocksNeedNoTable) {
  const ShelfOfLiterals shelf(500, 32, 1000);
  Recipe parent;
  parent.append({.blocks = 2, .frame = std::nullopt, .first = 0});
  parent.append({.blocks = 8, .frame = 100, .first = 4});
  // One block rewritten, the parent is longer than the chunk in one case and shorter in the other.
  const std::vector<std::optional<BlockRef>> m = match(contents({0, 0, 504, 77, 506, 507, 42}), &parent, shelf, {});
  EXPECT_EQ(found(m), 3u);
  EXPECT_EQ(*m[5], (BlockRef{100, 7}));
  EXPECT_EQ(found(match(run_of(502, 20), &parent, shelf, {})), 18u);  // from the third on, beyond the parent's end as well
}

TEST(Match, WhatTheTableSaysIsConfirmed) {
  ShelfOfLiterals shelf(10, 4);
  shelf.lie(77, {100, 1});   // another block
  shelf.lie(78, {5000, 0});  // none at all
  shelf.forget({100, 2});    // collected since
  EXPECT_EQ(found(match(contents({77, 78, 12}), nullptr, shelf, {})), 0u);
}

TEST(Match, TheFramesThatSaveLeastAreGivenUp) {
  const ShelfOfLiterals shelf(1000, 3 * kFrameBlocks);
  // 20 blocks of the first frame, 3 of the second, 10 of the third.
  std::vector<BlockFacts> chunk = run_of(1000, 20);
  for (const auto& [first, count] : {std::pair{1000 + kFrameBlocks + 5, 3u}, std::pair{1000 + 2 * kFrameBlocks, 10u}})
    for (const BlockFacts& b : run_of(first, count)) chunk.push_back(b);
  const std::vector<std::optional<BlockRef>> m = match(chunk, nullptr, shelf, {.max_frames = 2});
  EXPECT_EQ(found(m), 30u);
  EXPECT_FALSE(m[20]);
  EXPECT_EQ(found(match(chunk, nullptr, shelf, {.max_frames = 0})), 0u);
  EXPECT_EQ(found(match(chunk, nullptr, shelf, {.max_frames = 3})), 33u);
}

TEST(Match, ARunThatGoesOnIsNotLookedUp) {
  const ShelfOfLiterals shelf(1000, 64);
  match(run_of(1000, 64), nullptr, shelf, {});
  EXPECT_EQ(shelf.lookups, 1);
}

}  // namespace
}  // namespace ramet::chunk
