// Garbage collection beside everything else: what is alive is told from outside, in chunks; what that means for frames and
// packs is worked out here.
//
// Problem: a block is alive while any live recipe points at it, wherever the chunk came from; a pack cannot be changed; and
// batches refer to what is there all the while. Idea: for each frame a mask of the blocks that live recipes use. Packs with too
// little alive are *emptied*: their live blocks go into new frames, and every live chunk that pointed there, or whose record
// lay in that pack's tail, gets a new record in the new pack. So no tail that remains is needed for a chunk that it describes
// wrongly, and the index can still be rebuilt from the packs alone.
//
//   take away       what earlier ones and batches could not
//   begin           from here on no pin of a batch is let go
//   ask             what is alive; note which packs and chunks there are
//   condemn chunks  the dead ones that nobody pinned: a put of the same bytes stores them anew
//   condemn packs   those to be emptied in which nobody pinned a frame: out of the literal table, no put refers to them again
//   move            what is alive in them, into new packs, which are durable then
//   swap            one transaction; the emptied packs are unfinished from here on, so that a crash does not keep their files
//   remove          the files
//
// What fails before the swap leaves the store as it was: literals go back into the table. What a batch commits meanwhile is in
// packs that were not noted, and refers only to frames that were not condemned. A chunk that is committed with a new record
// while it is moved or dies: the index tells the records apart by their packs, and every record is good.
//
// Moving needs room before it gives any. Where there is none, only packs without anything alive are emptied: that may make
// some.
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
  enum class Empty { kHalfDeadToo, kDeadOnly };
  Collection(Store& store, Empty what) : store_(store), what_(what) {}

  ~Collection() {
    for (auto& [frame, prints] : withdrawn_) store_.literals_.put_back(frame, std::move(prints));
  }
  Collection(const Collection&) = delete;
  Collection& operator=(const Collection&) = delete;

  Result<Store::Collected> run(const std::function<Result<Store::LiveSet>()>& ask) {
    TRY_ASSIGN(Store::LiveSet live, ask());
    used_elsewhere_ = std::move(live.frames);
    TRY_ASSIGN(const Index::Totals before, store_.index_->totals());
    // A row that is lost or wrong would have what it stands for taken for dead.
    TRY(store_.index_->check());
    TRY(note_packs());
    TRY(sort_out(live));
    TRY(weigh());
    choose();
    Batch::State writer(store_);
    TRY(move_blocks(writer));
    TRY(move_records(writer));
    TRY(writer.write_rest());
    const uint64_t dead = dead_.size();
    Index::Collection change{.dead = std::move(dead_), .added = writer.written, .removed = {emptied_.begin(), emptied_.end()}};
    TRY(writer.note_outcome(store_.index_->apply(change)));
    writer.committed = true;
    take_over(writer);
    TRY_ASSIGN(const Index::Totals after, store_.index_->totals());
    return Store::Collected{.chunks_removed = dead,
                            .packs_removed = emptied_.size(),
                            .packs_written = writer.written.size(),
                            .bytes_before = before.pack_bytes,
                            .bytes_after = after.pack_bytes,
                            .only_whole_packs = what_ == Empty::kDeadOnly};
  }

 private:
  struct Weight {
    uint64_t bytes = 0, live_blocks = 0;
    double live_bytes = 0;  // of frames and of records
  };

  // Only these may be emptied: a pack that a commit adds from now on is not known well enough.
  Status note_packs() {
    const std::unique_lock publishing(store_.publishing_);
    TRY_ASSIGN(const std::vector<Index::Pack> packs, store_.index_->packs());
    for (const Index::Pack& pack : packs) weights_[pack.id].bytes = pack.bytes;
    return {};
  }

  Status sort_out(const Store::LiveSet& live) {
    std::vector<Index::Chunk> chunks;
    TRY(store_.index_->visit_chunks([&](Index::Chunk chunk) { chunks.push_back(std::move(chunk)); }));
    for (Index::Chunk& chunk : chunks) {
      if (!live.chunks.contains(chunk.digest) && pins_.condemn(chunk.digest)) {
        dead_.push_back(std::move(chunk));
        continue;
      }
      for (const Extent& e : chunk.recipe.extents)
        if (e.frame) used_[*e.frame] |= static_cast<uint32_t>(((uint64_t{1} << e.blocks) - 1) << e.first);
      kept_.push_back(std::move(chunk));
    }
    return {};
  }

  Status weigh() {
    for (const Index::Chunk& chunk : kept_)
      if (const auto weight = weights_.find(chunk.pack); weight != weights_.end())
        weight->second.live_bytes += static_cast<double>(sizeof(Digest) + encode_recipe(chunk.recipe).size());
    return store_.index_->visit_frames([&](const FramePlace& place) {
      const auto weight = weights_.find(place.pack);
      if (weight == weights_.end()) return;
      const auto used = used_.find(place.entry.id);
      const int blocks = used == used_.end() ? 0 : std::popcount(used->second);
      weight->second.live_blocks += static_cast<uint64_t>(blocks);
      weight->second.live_bytes += static_cast<double>(place.entry.stored_bytes) * blocks / place.entry.blocks;
      frames_[place.pack].push_back(place);
    });
  }

  void choose() {
    double bytes = 0, expected = kPackWaste;
    std::vector<PackId> half_dead;
    for (const auto& [id, w] : weights_) {
      if (w.live_bytes == 0) condemn(id);
      if (w.live_bytes == 0 || what_ == Empty::kDeadOnly || static_cast<double>(w.bytes) <= kMostPerLiveByte * w.live_bytes)
        continue;
      half_dead.push_back(id);
      bytes += static_cast<double>(w.bytes);
      expected += w.live_bytes + static_cast<double>(w.live_blocks * kTailBytesPerBlock);
    }
    if (expected > kWorthIt * bytes) return;
    for (const PackId& id : half_dead) condemn(id);
  }

  void condemn(const PackId& id) {
    std::vector<FrameId> frames;
    for (const FramePlace& place : frames_[id]) {
      if (used_elsewhere_.contains(place.entry.id)) return;
      frames.push_back(place.entry.id);
    }
    const bool done = pins_.condemn(frames, [&] {
      for (const FrameId frame : frames)
        if (std::vector<BlockPrint> prints = store_.literals_.take(frame); !prints.empty())
          withdrawn_.emplace_back(frame, std::move(prints));
    });
    if (done) emptied_.insert(id);
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
    withdrawn_.clear();  // for good
    for (Index::AddedPack& pack : writer.written) store_.literals_.add(std::move(pack.tail));
    for (const PackId& id : emptied_) store_.take_away(id);
  }

  Store& store_;
  const Empty what_;
  Pins::Collecting pins_{store_.pins_};
  FrameDecoder decoder_;
  std::vector<Index::Chunk> dead_, kept_;
  std::unordered_map<FrameId, uint32_t> used_;  // bit b: block b
  std::unordered_set<FrameId> used_elsewhere_;  // by stores whose recipes cannot be changed from here
  std::map<PackId, Weight> weights_;
  std::map<PackId, std::vector<FramePlace>> frames_;
  std::set<PackId> emptied_;
  std::vector<std::pair<FrameId, std::vector<BlockPrint>>> withdrawn_;
  std::map<BlockRef, BlockRef> moved_;
};

Result<Store::Collected> Store::collect(const std::function<Result<LiveSet>()>& live) {
  const std::lock_guard alone(collecting_);
  take_away_left_over();
  Result<Collected> all = Collection(*this, Collection::Empty::kHalfDeadToo).run(live);
  if (all || all.error().kind() != ErrorKind::kNoSpace) return all;
  Result<Collected> dead = Collection(*this, Collection::Empty::kDeadOnly).run(live);
  return dead && dead->packs_removed != 0 ? dead : all;
}

}  // namespace ramet::chunk
