#include <algorithm>

#include "chunk/batch_state.h"
#include "chunk/store.h"

namespace ramet::chunk {
namespace {

constexpr uint32_t kFrameIdsAtOnce = 64;

// A batch sees its own literals before those of the store.
class BatchLiterals final : public Literals {
 public:
  BatchLiterals(const Literals& own, const Literals& store) : own_(own), store_(store) {}
  std::optional<BlockRef> find(const BlockPrint& print) const override {
    const std::optional<BlockRef> ref = own_.find(print);
    return ref ? ref : store_.find(print);
  }
  std::optional<BlockPrint> print_of(const BlockRef& ref) const override {
    const std::optional<BlockPrint> print = own_.print_of(ref);
    return print ? print : store_.print_of(ref);
  }
  std::optional<BlockRef> next(const BlockRef& ref) const override {
    return own_.print_of(ref) ? own_.next(ref) : store_.next(ref);
  }
  std::optional<BlockRef> previous(const BlockRef& ref) const override {
    return own_.print_of(ref) ? own_.previous(ref) : store_.previous(ref);
  }

 private:
  const Literals& own_;
  const Literals& store_;
};

Digest name_of(std::span<const BlockFacts> facts) {
  std::vector<Digest> digests;
  digests.reserve(facts.size());
  for (const BlockFacts& f : facts) digests.push_back(f.digest);
  return digest_of(digests);
}

}  // namespace

Batch::Batch(std::unique_ptr<State> state) : state_(std::move(state)) {}
Batch::Batch(Batch&&) noexcept = default;
Batch::~Batch() = default;

Result<std::optional<Digest>> Batch::put(std::span<const std::byte> plain, const std::optional<Digest>& parent) {
  if (plain.empty() || plain.size() % kBlockBytes != 0 || plain.size() > kMaxChunkBlocks * kBlockBytes)
    return fail(ErrorKind::kInvalid, "a chunk of " + std::to_string(plain.size()) + " bytes; whole blocks of " +
                                         std::to_string(kBlockBytes) + ", at most " + std::to_string(kMaxChunkBlocks));
  if (state_->failed || state_->committed) return fail(ErrorKind::kConflict, "the batch has ended");
  const std::vector<BlockFacts> facts = facts_of(plain);
  if (std::all_of(facts.begin(), facts.end(), [](const BlockFacts& f) { return f.zero; })) return std::optional<Digest>();
  Result<Digest> digest = state_->store_chunk(plain, facts, parent);
  if (digest) return std::optional(*digest);
  state_->failed = true;
  return tl::unexpected<Error>(std::move(digest).error());
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
  Result<Recipe> recipe = store.index_->recipe(digest);
  return recipe ? std::optional(*std::move(recipe)) : std::nullopt;  // only a hint
}

Result<Digest> Batch::State::store_chunk(std::span<const std::byte> plain, std::span<const BlockFacts> facts,
                                         const std::optional<Digest>& parent) {
  const Digest digest = name_of(facts);
  if (recipes.contains(digest)) return digest;
  if (pins.hold(digest) == Pins::Holder::Chunk::kMayBeUsed) {
    TRY_ASSIGN(const bool known, store.index_->has_chunk(digest));
    if (known) return digest;
  }
  const std::optional<Recipe> from = parent ? recipe_of(*parent) : std::nullopt;
  const std::vector<std::optional<BlockRef>> matches = match_and_hold(facts, from ? &*from : nullptr);
  Recipe recipe;
  for (size_t i = 0; i < facts.size(); i++) {
    Extent extent{.blocks = 1, .frame = std::nullopt, .first = 0};
    if (!facts[i].zero) {
      std::optional<BlockRef> ref = matches[i];
      if (!ref) {
        TRY_ASSIGN(ref, place(plain.subspan(i * kBlockBytes, kBlockBytes), facts[i].digest));
      }
      extent.frame = ref->frame;
      extent.first = ref->block;
    }
    recipe.append(extent);
  }
  TRY(make_room(kFrameBlocks, encode_recipe(recipe).size()));
  pack->add_chunk(digest, recipe);
  recipes.emplace(digest, std::move(recipe));
  return digest;
}

std::vector<std::optional<BlockRef>> Batch::State::match_and_hold(std::span<const BlockFacts> facts, const Recipe* parent) {
  const BatchLiterals literals(own, store.literals_);
  for (;;) {
    std::vector<std::optional<BlockRef>> matches = match(facts, parent, literals, {store.options_.max_frames_per_chunk});
    std::unordered_set<FrameId> frames;
    for (const std::optional<BlockRef>& ref : matches)
      if (ref) frames.insert(ref->frame);
    const std::vector<FrameId> used(frames.begin(), frames.end());
    pins.hold(used);
    // Condemned in between they are not there any more, and once held they stay.
    if (std::ranges::all_of(used, [&](FrameId f) { return literals.print_of({f, 0}).has_value(); })) return matches;
  }
}

Result<BlockRef> Batch::State::place(std::span<const std::byte> block, const Digest& digest) {
  const BlockPrint print = print_of(digest);
  // Stored a moment ago, in this very chunk: a page of ones, say.
  if (const std::optional<BlockRef> again = own.find(print); again && own.print_of(*again) == print) return *again;
  if (frame_digests.empty()) {
    if (next_id == ids_end) {
      TRY_ASSIGN(next_id, store.index_->reserve_frame_ids(kFrameIdsAtOnce));
      ids_end = next_id + kFrameIdsAtOnce;
    }
    frame = next_id++;
  }
  const BlockRef ref{frame, static_cast<uint32_t>(frame_digests.size())};
  frame_plain.insert(frame_plain.end(), block.begin(), block.end());
  frame_digests.push_back(digest);
  own.append(frame, print);
  if (frame_digests.size() == kFrameBlocks) TRY(close_frame());
  return ref;
}

Status Batch::State::close_frame() {
  if (frame_digests.empty()) return {};
  TRY(make_room(static_cast<uint32_t>(frame_digests.size()), 0));
  pack->add_frame(frame, frame_plain, frame_digests, encoder);
  frame_plain.clear();
  frame_digests.clear();
  return {};
}

Status Batch::State::make_room(uint32_t frame_blocks, size_t recipe_bytes) {
  if (pack && pack->has_room_for(frame_blocks, recipe_bytes)) return {};
  if (pack) TRY(write_pack());
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
    take_away(id);
    return done;
  }
  written.push_back({id, bytes.size(), pack->tail()});
  pack.reset();
  return {};
}

Status Batch::State::write_rest() {
  TRY(close_frame());
  return pack && !pack->empty() ? write_pack() : Status();
}

}  // namespace ramet::chunk
