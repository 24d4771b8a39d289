// chunk/batch_state.h - the inside of a batch: frames and packs that grow. Also how a collection writes what it moves.
// Not for users of the folder: store.h is. Thread: one.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "chunk/frame_compressor.h"
#include "chunk/store.h"

namespace ramet::chunk {

struct Batch::State {
  explicit State(Store& s) : store(s), common(s.options_.common), pins(s.pins_), compressor(s.options_.compress_threads) {
    if (common) common_pins.emplace(common->pins_);
  }
  ~State() {
    if (committed || in_doubt) return;
    for (const Index::AddedPack& one : written) store.take_away(one.id);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Requires: it is not all zero.
  Status store_chunk(const Prepared& chunk, const std::optional<Digest>& parent);
  // Whether the store or the public one has it. Pinned either way.
  Result<bool> find_and_hold(const Digest& digest);
  void hold(const std::unordered_set<FrameId>& frames);
  // What the store has of it; all of that is pinned.
  std::vector<std::optional<BlockRef>> match_and_hold(std::span<const BlockFacts> facts, const Recipe* parent);
  Result<BlockRef> place(std::span<const std::byte> block, const Digest& digest);
  Status close_frame();
  // The oldest frame that was compressed into the pack.   False: none is done.
  Result<bool> add_compressed(FrameCompressor::Wait wait);
  Status add_all_compressed(FrameCompressor::Wait wait);
  Status make_room(uint32_t frame_blocks, size_t recipe_bytes);
  Status write_pack();
  Status write_rest();
  // Of the transaction that makes the packs known. Where the disk failed in it, a crash may yet bring it about: the packs stay,
  // announced, until the next open() sees what became of it.
  Status note_outcome(Status transaction);
  std::optional<Recipe> recipe_of(const Digest& digest) const;

  Store& store;
  Store* const common;  // may be null
  Pins::Holder pins;    // also after the commit: until somebody has noted what the chunks are for
  std::optional<Pins::Holder> common_pins;
  FrameCompressor compressor;
  LiteralTable own;
  std::unordered_map<Digest, Recipe, DigestHash> recipes;
  std::optional<PackBuilder> pack;
  std::vector<Index::AddedPack> written;
  FrameCompressor::Frame growing;
  FrameId next_id = 0, ids_end = 0;
  bool committed = false;
  bool failed = false;
  bool in_doubt = false;
};

}  // namespace ramet::chunk
