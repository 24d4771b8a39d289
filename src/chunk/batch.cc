#include <algorithm>
#include <utility>

#include "chunk/batch_literals.h"
#include "chunk/batch_state.h"
#include "chunk/store.h"

namespace ramet::chunk {
namespace {

constexpr uint32_t kFrameIdsAtOnce = 64;

}  // namespace

Batch::Batch(std::unique_ptr<State> state) : state_(std::move(state)) {}
Batch::Batch(Batch&&) noexcept = default;
Batch::~Batch() = default;

Result<std::optional<Digest>> Batch::put(std::span<const std::byte> plain, const std::optional<Digest>& parent) {
  TRY_ASSIGN(const Prepared chunk, prepare(plain));
  return put(chunk, parent);
}

Result<std::optional<Digest>> Batch::put(const Prepared& chunk, const std::optional<Digest>& parent) {
  if (state_->failed || state_->committed) return fail(ErrorKind::kConflict, "the batch has ended");
  if (!chunk.name) return std::optional<Digest>();
  const Status stored = state_->store_chunk(chunk, parent);
  if (stored) return chunk.name;
  state_->failed = true;
  return tl::unexpected<Error>(stored.error());
}

Status Batch::commit() {
  State& s = *state_;
  if (s.failed || s.committed) return fail(ErrorKind::kConflict, "the batch has ended");
  s.failed = true;  // until it is not
  TRY(s.write_rest());
  {
    const std::shared_lock publishing(s.store.publishing_);
    TRY(s.note_outcome(s.store.index_->add(s.written)));
    s.committed = true;
    for (Index::AddedPack& pack : s.written) s.store.literals_.add(std::move(pack.tail));
  }
  return {};
}

Status Batch::State::note_outcome(Status transaction) {
  in_doubt = !transaction && transaction.error().kind() == ErrorKind::kIo;
  return transaction;
}

std::optional<Recipe> Batch::State::recipe_of(const Digest& digest) const {
  const auto it = recipes.find(digest);
  if (it != recipes.end()) return it->second;
  if (Result<Recipe> recipe = store.index_->recipe(digest)) return *std::move(recipe);
  if (!common) return std::nullopt;
  Result<Recipe> recipe = common->index_->recipe(digest);
  if (!recipe) return std::nullopt;  // only a hint
  for (Extent& e : recipe->extents)
    if (e.frame) *e.frame |= kCommonFrame;
  return *std::move(recipe);
}

Result<bool> Batch::State::find_and_hold(const Digest& digest) {
  if (pins.hold(digest) == Pins::Holder::Chunk::kMayBeUsed) {
    TRY_ASSIGN(const bool known, store.index_->has_chunk(digest));
    if (known) return true;
  }
  if (!common || common_pins->hold(digest) == Pins::Holder::Chunk::kIsCondemned) return false;
  return common->index_->has_chunk(digest);
}

Status Batch::State::store_chunk(const Prepared& chunk, const std::optional<Digest>& parent) {
  const std::vector<BlockFacts>& facts = chunk.facts;
  if (recipes.contains(*chunk.name)) return {};
  TRY_ASSIGN(const bool known, find_and_hold(*chunk.name));
  if (known) return {};
  const std::optional<Recipe> from = parent ? recipe_of(*parent) : std::nullopt;
  const std::vector<std::optional<BlockRef>> matches = match_and_hold(facts, from ? &*from : nullptr);
  Recipe recipe;
  for (size_t i = 0; i < facts.size(); i++) {
    Extent extent{.blocks = 1, .frame = std::nullopt, .first = 0};
    if (!facts[i].zero) {
      std::optional<BlockRef> ref = matches[i];
      if (!ref) {
        TRY_ASSIGN(ref, place(chunk.plain.subspan(i * kBlockBytes, kBlockBytes), facts[i].digest));
      }
      extent.frame = ref->frame;
      extent.first = ref->block;
    }
    recipe.append(extent);
  }
  TRY(make_room(kFrameBlocks, encode_recipe(recipe).size()));
  pack->add_chunk(*chunk.name, recipe);
  recipes.emplace(*chunk.name, std::move(recipe));
  return {};
}

std::vector<std::optional<BlockRef>> Batch::State::match_and_hold(std::span<const BlockFacts> facts, const Recipe* parent) {
  LiteralsInOrder literals;
  literals.append(own);
  literals.append(store.literals_);
  std::optional<CommonLiterals> theirs;
  if (common) literals.append(theirs.emplace(common->literals_));
  for (;;) {
    std::vector<std::optional<BlockRef>> matches = match(facts, parent, literals, {store.options_.max_frames_per_chunk});
    std::unordered_set<FrameId> frames;
    for (const std::optional<BlockRef>& ref : matches)
      if (ref) frames.insert(ref->frame);
    hold(frames);
    // Condemned in between they are not there any more, and once held they stay.
    if (std::ranges::all_of(frames, [&](FrameId f) { return literals.print_of({f, 0}).has_value(); })) return matches;
  }
}

void Batch::State::hold(const std::unordered_set<FrameId>& frames) {
  std::vector<FrameId> ours, theirs;
  for (const FrameId id : frames) {
    if (is_common(id))
      theirs.push_back(id & ~kCommonFrame);
    else
      ours.push_back(id);
  }
  pins.hold(ours);
  if (common_pins) common_pins->hold(theirs);
}

Result<BlockRef> Batch::State::place(std::span<const std::byte> block, const Digest& digest) {
  const BlockPrint print = print_of(digest);
  // Stored a moment ago, in this very chunk: a page of ones, say.
  if (const std::optional<BlockRef> again = own.find(print)) return *again;
  if (growing.blocks.empty()) {
    if (next_id == ids_end) {
      TRY_ASSIGN(next_id, store.index_->reserve_frame_ids(kFrameIdsAtOnce));
      ids_end = next_id + kFrameIdsAtOnce;
    }
    growing = compressor.empty_frame();
    growing.id = next_id++;
  }
  const BlockRef ref{growing.id, static_cast<uint32_t>(growing.blocks.size())};
  growing.plain.insert(growing.plain.end(), block.begin(), block.end());
  growing.blocks.push_back(digest);
  own.append(growing.id, print);
  if (growing.blocks.size() == kFrameBlocks) TRY(close_frame());
  return ref;
}

Status Batch::State::close_frame() {
  if (growing.blocks.empty()) return {};
  if (compressor.full()) {
    TRY_ASSIGN(const bool oldest, add_compressed(FrameCompressor::Wait::kYes));
    (void)oldest;
  }
  compressor.add(std::exchange(growing, {}));
  return add_all_compressed(FrameCompressor::Wait::kNo);
}

Result<bool> Batch::State::add_compressed(FrameCompressor::Wait wait) {
  std::optional<FrameCompressor::Frame> done = compressor.take(wait);
  if (!done) return false;
  TRY(make_room(done->entry.blocks, 0));
  pack->add_frame(done->id, done->entry, done->stored_bytes(), done->blocks);
  compressor.give_back(*std::move(done));
  return true;
}

Status Batch::State::add_all_compressed(FrameCompressor::Wait wait) {
  for (;;) {
    TRY_ASSIGN(const bool added, add_compressed(wait));
    if (!added) return {};
  }
}

Status Batch::State::make_room(uint32_t frame_blocks, size_t recipe_bytes) {
  if (pack && pack->has_room_for(frame_blocks, recipe_bytes)) return {};
  if (pack) return write_pack();
  TRY_ASSIGN(const PackId id, random_pack_id());
  TRY_ASSIGN(pack, PackBuilder::create(id));
  return {};
}

Status Batch::State::write_pack() {
  const PackId id = pack->id();
  TRY(store.index_->begin_pack(id));
  const std::span<const std::byte> bytes = pack->finish();
  const Status done = store.packs_->write(id, bytes);
  if (!done) {
    store.take_away(id);
    return done;
  }
  written.push_back({id, bytes.size(), pack->tail()});
  TRY_ASSIGN(const PackId next, random_pack_id());
  pack->restart(next);
  return {};
}

Status Batch::State::write_rest() {
  TRY(close_frame());
  TRY(add_all_compressed(FrameCompressor::Wait::kYes));
  if (pack && !pack->empty()) TRY(write_pack());
  pack.reset();
  return {};
}

}  // namespace ramet::chunk
