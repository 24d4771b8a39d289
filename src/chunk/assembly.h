// chunk/assembly.h - a chunk, or a part of one, put together from the frames that its recipe names.
// Frames that lie side by side in a pack are read at once, each frame once however often the recipe comes back to it, and
// decompressed to where they belong if they belong there as a whole. Not here: looking up the recipe. Thread: one.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "chunk/frame.h"
#include "chunk/index.h"
#include "chunk/pack_storage.h"
#include "chunk/recipe.h"

namespace ramet::chunk {

class Assembly {
 public:
  // Where frames are looked up, and their packs.
  struct Domain {
    const Index& index;
    PackStorage& packs;
  };
  // `common`: the public one whose frames recipes of `own` may name.
  explicit Assembly(Domain own, std::optional<Domain> common = std::nullopt) : own_(own), common_(common) {}
  // Blocks of the recipe from `first_block` on, as many as `out` has room for.
  // Errors: kNotFound (a frame moved meanwhile, or is lost), kCorrupt, kIo, kUnavailable; `out` then holds anything.
  Status run(const Recipe& recipe, uint32_t first_block, std::span<std::byte> out, FrameProof proof);

 private:
  // Blocks of a frame and where they go.
  struct Piece {
    FrameId frame = 0;
    uint32_t from = 0, blocks = 0;
    size_t to = 0;  // block of the output
  };
  struct Part {
    FramePlace place;
    PackStorage* packs = nullptr;
    std::span<const Piece> pieces;
  };
  std::vector<Piece> pieces_of(const Recipe& recipe, uint32_t first_block, std::span<std::byte> out) const;
  Result<std::vector<FramePlace>> places_of(std::span<const FrameId> sorted) const;
  Result<std::vector<Part>> parts_of(std::span<const Piece> pieces) const;
  // Parts that lie side by side in a pack.
  Status read_together(std::span<const Part> parts, std::span<std::byte> out, FrameProof proof);
  Status place(const Part& part, std::span<const std::byte> stored, std::span<std::byte> out, FrameProof proof);

  const Domain own_;
  const std::optional<Domain> common_;
  FrameDecoder decoder_;
  std::vector<std::byte> stored_, plain_;  // kept for their capacity
};

}  // namespace ramet::chunk
