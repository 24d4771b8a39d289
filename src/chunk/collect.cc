// Garbage collection: what is alive is told from outside, in chunks; what that means for frames and packs is worked out here.
//
// Problem: a block is alive while any live recipe points at it, wherever the chunk came from; and a pack cannot be changed.
// Idea: for each frame a mask of the blocks that live recipes use. Packs with too little alive are *emptied*: their live blocks
// go into new frames, and every live chunk that pointed there, or whose record lay in that pack's tail, gets a new record in
// the new pack. So no tail that remains is needed for a chunk that it describes wrongly, and the index can still be rebuilt
// from the packs alone. Order: new packs are durable, one transaction swaps, old files go away (announced as unfinished by that
// transaction).
#include <bit>
#include <map>
#include <set>
#include <unordered_map>

#include "chunk/batch_state.h"
#include "chunk/store.h"

namespace ramet::chunk {
namespace {

constexpr double kMostPerLiveByte = 1.5;
// What writing anew must save at least, so that small packs are not written again and again for nothing.
constexpr double kWorthIt = 0.9;
constexpr uint64_t kTailBytesPerBlock = 20, kPackWaste = 2 * kPackAlignment;

}  // namespace

class Collection {
 public:
  explicit Collection(Store& store) : store_(store) {}

  Result<Store::Collected> run(const std::unordered_set<Digest, DigestHash>& live) {
    TRY_ASSIGN(const Index::Totals before, store_.index_->totals());
    TRY(sort_out(live));
    TRY(weigh());
    choose();
    Batch::State writer(store_);
    TRY(move_blocks(writer));
    TRY(move_records(writer));
    TRY(writer.write_rest());
    Index::Collection change{.dead_chunks = dead_, .added = writer.written, .removed = {emptied_.begin(), emptied_.end()}};
    TRY(store_.index_->apply(change));
    writer.committed = true;
    take_over(writer);
    TRY_ASSIGN(const Index::Totals after, store_.index_->totals());
    return Store::Collected{.chunks_removed = dead_.size(),
                            .packs_removed = emptied_.size(),
                            .packs_written = writer.written.size(),
                            .bytes_before = before.pack_bytes,
                            .bytes_after = after.pack_bytes};
  }

 private:
  struct Weight {
    uint64_t bytes = 0, live_blocks = 0;
    double live_bytes = 0;  // of frames and of records
  };

  Status sort_out(const std::unordered_set<Digest, DigestHash>& live) {
    return store_.index_->visit_chunks([&](Index::Chunk chunk) {
      if (!live.contains(chunk.digest)) {
        dead_.push_back(chunk.digest);
        return;
      }
      for (const Extent& e : chunk.recipe.extents)
        if (e.frame) used_[*e.frame] |= static_cast<uint32_t>(((uint64_t{1} << e.blocks) - 1) << e.first);
      kept_.push_back(std::move(chunk));
    });
  }

  Status weigh() {
    TRY_ASSIGN(const std::vector<Index::Pack> packs, store_.index_->packs());
    for (const Index::Pack& pack : packs) weights_[pack.id].bytes = pack.bytes;
    for (const Index::Chunk& chunk : kept_)
      weights_[chunk.pack].live_bytes += static_cast<double>(sizeof(Digest) + encode_recipe(chunk.recipe).size());
    return store_.index_->visit_frames([&](const FramePlace& place) {
      const auto used = used_.find(place.entry.id);
      const int blocks = used == used_.end() ? 0 : std::popcount(used->second);
      Weight& w = weights_[place.pack];
      w.live_blocks += static_cast<uint64_t>(blocks);
      w.live_bytes += static_cast<double>(place.entry.stored_bytes) * blocks / place.entry.blocks;
      frames_[place.pack].push_back(place);
    });
  }

  void choose() {
    double bytes = 0, expected = kPackWaste;
    std::vector<PackId> half_dead;
    for (const auto& [id, w] : weights_) {
      if (w.live_bytes == 0) emptied_.insert(id);
      if (w.live_bytes == 0 || static_cast<double>(w.bytes) <= kMostPerLiveByte * w.live_bytes) continue;
      half_dead.push_back(id);
      bytes += static_cast<double>(w.bytes);
      expected += w.live_bytes + static_cast<double>(w.live_blocks * kTailBytesPerBlock);
    }
    if (expected <= kWorthIt * bytes) emptied_.insert(half_dead.begin(), half_dead.end());
  }

  Status move_blocks(Batch::State& writer) {
    std::vector<std::byte> plain;
    for (const PackId& id : emptied_) {
      for (const FramePlace& place : frames_[id]) {
        const auto used = used_.find(place.entry.id);
        if (used == used_.end()) continue;
        plain.resize(place.entry.blocks * kBlockBytes);
        TRY(read_frame(*store_.packs_, id, place.entry, decoder_, plain));
        for (uint32_t b = 0; b < place.entry.blocks; b++) {
          if (!(used->second >> b & 1)) continue;
          const std::span<const std::byte> block = std::span(plain).subspan(b * kBlockBytes, kBlockBytes);
          TRY_ASSIGN(const BlockRef to, writer.place(block, block_digest(block)));
          moved_[{place.entry.id, b}] = to;
        }
      }
    }
    return {};
  }

  Status move_records(Batch::State& writer) {
    for (const Index::Chunk& chunk : kept_) {
      Recipe recipe;
      bool changed = emptied_.contains(chunk.pack);
      for (const Extent& e : chunk.recipe.extents) {
        if (!e.frame || !moved_.contains({*e.frame, e.first})) {
          recipe.append(e);
          continue;
        }
        changed = true;
        for (uint32_t b = 0; b < e.blocks; b++) {
          const auto to = moved_.find({*e.frame, e.first + b});
          if (to == moved_.end()) return fail(ErrorKind::kInternal, "a block in use was not moved");
          recipe.append({.blocks = 1, .frame = to->second.frame, .first = to->second.block});
        }
      }
      if (!changed) continue;
      TRY(writer.make_room(kFrameBlocks, encode_recipe(recipe).size()));
      writer.pack->add_chunk(chunk.digest, recipe);
    }
    return {};
  }

  void take_over(Batch::State& writer) {
    for (const PackId& id : emptied_)
      for (const FramePlace& place : frames_[id]) store_.literals_.remove(place.entry.id);
    for (Index::AddedPack& pack : writer.written) store_.literals_.add(std::move(pack.tail));
    for (const PackId& id : emptied_) writer.take_away(id);
  }

  Store& store_;
  FrameDecoder decoder_;
  std::vector<Digest> dead_;
  std::vector<Index::Chunk> kept_;
  std::unordered_map<FrameId, uint32_t> used_;  // bit b: block b
  std::map<PackId, Weight> weights_;
  std::map<PackId, std::vector<FramePlace>> frames_;
  std::set<PackId> emptied_;
  std::map<BlockRef, BlockRef> moved_;
};

Result<Store::Collected> Store::collect(const std::unordered_set<Digest, DigestHash>& live) {
  const std::unique_lock alone(in_use_);
  return Collection(*this).run(live);
}

}  // namespace ramet::chunk
