#include "chunk/store.h"

#include "base/checked.h"
#include "base/log.h"
#include "chunk/assembly.h"
#include "chunk/batch_state.h"

namespace ramet::chunk {

Result<std::unique_ptr<Store>> Store::open(std::unique_ptr<PackStorage> packs, const std::string& index_path, Options options) {
  if (options.common && options.common->options_.common)
    return fail(ErrorKind::kInvalid, "a public store that refers to another one");
  TRY_ASSIGN(std::unique_ptr<Index> index, Index::open(index_path));
  if (options.set_space_aside) index->set_space_aside();
  std::unique_ptr<Store> store(new Store(std::move(packs), std::move(index), options));
  TRY(store->load());
  return store;
}

Result<std::unique_ptr<const Store>> Store::open_to_read(std::unique_ptr<PackStorage> packs, const std::string& index_path) {
  TRY_ASSIGN(std::unique_ptr<Index> index, Index::open_to_read(index_path));
  return std::unique_ptr<const Store>(new Store(std::move(packs), std::move(index), {}));
}

Status Store::load() {
  TRY_ASSIGN(const std::vector<PackId> unfinished, index_->unfinished_packs());
  for (const PackId& id : unfinished) {
    Status gone = packs_->remove(id);
    if (gone) gone = index_->forget_pack(id);
    if (gone) continue;
    // Neither a remote that is away nor a full disk keeps a host down.
    if (gone.error().kind() != ErrorKind::kUnavailable && gone.error().kind() != ErrorKind::kNoSpace) return gone;
    left_over_.push_back(id);
  }
  TRY_ASSIGN(const std::vector<Index::Pack> packs, index_->packs());
  if (packs.empty()) {
    // A new index would give frames the numbers of those that are there.
    TRY_ASSIGN(const std::vector<PackId> there, packs_->list());
    if (!there.empty())
      return fail(ErrorKind::kCorrupt, "the index knows none of the " + std::to_string(there.size()) +
                                           " packs: rebuild it, and take away those that cannot be read");
  }
  for (const Index::Pack& pack : packs) {
    Result<PackTail> tail = read_pack_tail(*packs_, pack.id);
    if (!tail) {
      // What lies in it can be read as long as the frames are whole; nothing new shall refer to it.
      log_warn("store: " + tail.error().to_string());
      continue;
    }
    literals_.add(*std::move(tail));
  }
  return {};
}

void Store::take_away(const PackId& id) {
  if (packs_->remove(id) && index_->forget_pack(id)) return;
  const std::lock_guard lock(left_over_mutex_);
  left_over_.push_back(id);
}

void Store::take_away_left_over() {
  std::vector<PackId> packs;
  {
    const std::lock_guard lock(left_over_mutex_);
    packs.swap(left_over_);
  }
  for (const PackId& id : packs) take_away(id);
}

Batch Store::begin() { return Batch(std::make_unique<Batch::State>(*this)); }

Result<bool> Store::has(const Digest& digest) const {
  TRY_ASSIGN(const bool own, index_->has_chunk(digest));
  return own || !options_.common ? Result<bool>(own) : options_.common->has(digest);
}

Result<Recipe> Store::recipe(const Digest& digest) const {
  Result<Recipe> own = index_->recipe(digest);
  if (own || own.error().kind() != ErrorKind::kNotFound || !options_.common) return own;
  TRY_ASSIGN(Recipe common, options_.common->recipe(digest));
  for (Extent& e : common.extents)
    if (e.frame) *e.frame |= kCommonFrame;
  return common;
}

Result<FramePlace> Store::frame(FrameId id) const {
  if (options_.common && is_common(id)) return options_.common->frame(id & ~kCommonFrame);
  return index_->frame(id);
}

Result<std::unordered_set<FrameId>> Store::uses_of_common() const {
  std::unordered_set<FrameId> out;
  TRY(index_->visit_chunks([&](const Index::Chunk& chunk) {
    for (const Extent& e : chunk.recipe.extents)
      if (e.frame && is_common(*e.frame)) out.insert(*e.frame & ~kCommonFrame);
  }));
  return out;
}

// A collection may move what a recipe names between looking it up and reading it: then the second look finds it.
Status Store::assemble(const Digest& digest, const std::function<Result<std::span<std::byte>>(const Recipe&)>& place,
                       uint32_t first_block, FrameProof proof) const {
  const Store* const common = options_.common;
  Assembly assembly({*index_, *packs_},
                    common ? std::optional(Assembly::Domain{*common->index_, *common->packs_}) : std::nullopt);
  for (int attempt = 1;; attempt++) {
    const Result<Recipe> recipe = index_->recipe(digest);
    if (!recipe && recipe.error().kind() == ErrorKind::kNotFound && common)
      return common->assemble(digest, place, first_block, proof);
    if (!recipe) return tl::unexpected<Error>(recipe.error());
    TRY_ASSIGN(const std::span<std::byte> out, place(*recipe));
    Status done = assembly.run(*recipe, first_block, out, proof);
    if (done || done.error().kind() != ErrorKind::kNotFound || attempt == 3) return done;
  }
}

Result<std::vector<std::byte>> Store::get(const Digest& digest) const {
  std::vector<std::byte> out;
  TRY(get(digest, [&](size_t bytes) -> Result<std::span<std::byte>> {
    out.resize(bytes);
    return out;
  }));
  return out;
}

Status Store::get(const Digest& digest, const std::function<Result<std::span<std::byte>>(size_t bytes)>& room) const {
  TRY(get_prepared(digest, room));
  return {};
}

Result<Prepared> Store::get_prepared(const Digest& digest,
                                     const std::function<Result<std::span<std::byte>>(size_t bytes)>& room) const {
  std::span<std::byte> out;
  const auto place = [&](const Recipe& recipe) -> Result<std::span<std::byte>> {
    TRY_ASSIGN(out, room(recipe.blocks() * kBlockBytes));
    return out;
  };
  // The second time it is asked which frame is not what it was.
  for (const FrameProof proof : {FrameProof::kCallers, FrameProof::kOwnDigest}) {
    TRY(assemble(digest, place, 0, proof));
    Result<Prepared> chunk = prepare(out);
    if (chunk && chunk->name == digest) return chunk;
  }
  return fail(ErrorKind::kCorrupt, "chunk " + digest.to_hex() + " does not have its digest");
}

bool Store::is_block(const BlockRef& ref, std::span<const std::byte> plain) const {
  const std::optional<BlockPrint> print = literals_.print_of(ref);
  return print && print_of(plain) == *print;
}

Status Store::read(const Digest& digest, uint32_t first_block, std::span<std::byte> out) const {
  const auto place = [&](const Recipe& recipe) -> Result<std::span<std::byte>> {
    if (out.size() % kBlockBytes != 0 || !range_within(first_block, out.size() / kBlockBytes, recipe.blocks()))
      return fail(ErrorKind::kInvalid, std::to_string(out.size()) + " bytes from block " + std::to_string(first_block) +
                                           " of a chunk of " + std::to_string(recipe.blocks()) + " blocks");
    return out;
  };
  return assemble(digest, place, first_block, FrameProof::kOwnDigest);
}

}  // namespace ramet::chunk
