#include "host/images/disk_reader.h"

namespace ramet::host {
namespace {

using image::BlockRange;

// Chunks that a run of zeros is followed through: a page of the manifest.
constexpr uint64_t kMostZeroChunks = image::kPageChunks;
// Recipes kept: of 1 GiB of disk. One has some 3 KiB, 100 at most.
constexpr size_t kMostRecipes = 64;

// The extent that holds this block of the chunk, and where the extent begins.   Requires: block < recipe.blocks().
struct Found {
  chunk::Extent extent;
  uint64_t begin = 0;
};
Found find_extent(const chunk::Recipe& recipe, uint64_t block) {
  uint64_t at = 0;
  for (const chunk::Extent& e : recipe.extents) {
    if (block < at + e.blocks) return {e, at};
    at += e.blocks;
  }
  return {};
}

}  // namespace

DiskReader::DiskReader(ImageStore& images, Options options)
    : images_(images),
      common_(options.common),
      frames_(options.decoded_bytes),
      recipes_(kMostRecipes),
      misses_(options.fill),
      filler_(images.fetcher(), images.cache(), images.counters(),
              {images.options().admit, [this] { tell_cache_is_leased(); }}) {}

Result<DiskAnswer> DiskReader::read(OpenImage& image, BlockRange wanted, MayLend may_lend) {
  images_.counters().asks++;
  if (wanted.first >= image.blocks())
    return fail(ErrorKind::kInvalid,
                "block " + std::to_string(wanted.first) + " of a disk of " + std::to_string(image.blocks()) + " blocks");
  // A collection may move the blocks between two looks: the next recipe knows where they are.
  for (int attempt = 1;; attempt++) {
    Result<DiskAnswer> answer = look(image, wanted, may_lend);
    if (answer) return answer;
    const ErrorKind kind = answer.error().kind();
    if (kind == ErrorKind::kNotFound && attempt < 3) continue;
    images_.counters().failed++;
    if (kind == ErrorKind::kUnavailable) return answer;
    return fail(ErrorKind::kIo, answer.error().message());
  }
}

Result<DiskAnswer> DiskReader::look(OpenImage& image, BlockRange wanted, MayLend may_lend) {
  const uint64_t full = image::chunk_blocks(image.root().kind), number = wanted.first / full;
  TRY_ASSIGN(const Digest name, image.chunk(number));
  if (name == image::kZeros) {
    TRY_ASSIGN(const uint64_t end, end_of_zeros(image, number + 1));
    return ZeroBlocks{{number * full, end - number * full}};
  }
  if (may_lend == MayLend::kChunks)
    if (std::optional<chunk::ChunkCache::Lease> lease = cached(name)) return WholeChunk{number, *std::move(lease)};
  Result<DiskAnswer> own = read_stored(image, wanted, name);
  if (own || own.error().kind() != ErrorKind::kNotFound || !common_) return own;
  return common_->read_stored(image, wanted, name);
}

std::optional<chunk::ChunkCache::Lease> DiskReader::cached(const Digest& name) {
  std::optional<chunk::ChunkCache::Lease> lease = images_.cache().find(name);
  return lease || !common_ ? std::move(lease) : common_->cached(name);
}

Result<DiskAnswer> DiskReader::read_stored(OpenImage& image, BlockRange wanted, const Digest& name) {
  const uint64_t full = image::chunk_blocks(image.root().kind), number = wanted.first / full, begin = number * full;
  TRY_ASSIGN(const RecipeCache::RecipePtr recipe, recipe_of(name));
  note_miss(name);
  if (recipe->blocks() != image.blocks_of(number))
    return fail(ErrorKind::kCorrupt, "chunk " + std::to_string(number) + " of '" + image.id().name + "' has " +
                                         std::to_string(recipe->blocks()) + " blocks, the image " +
                                         std::to_string(image.blocks_of(number)) + " there");
  const Found found = find_extent(*recipe, wanted.first - begin);
  if (found.extent.frame) {
    Result<DiskAnswer> answer = read_frame(wanted, begin + found.begin, found.extent);
    if (!answer && answer.error().kind() == ErrorKind::kNotFound) recipes_.forget(name);
    return answer;
  }
  const BlockRange zeros{begin + found.begin, found.extent.blocks};
  if (zeros.end() != begin + full) return ZeroBlocks{zeros};
  TRY_ASSIGN(const uint64_t end, end_of_zeros(image, number + 1));
  return ZeroBlocks{{zeros.first, end - zeros.first}};
}

Result<RecipeCache::RecipePtr> DiskReader::recipe_of(const Digest& chunk) {
  if (RecipeCache::RecipePtr kept = recipes_.find(chunk)) return kept;
  TRY_ASSIGN(chunk::Recipe recipe, images_.chunks().index().recipe(chunk));
  return recipes_.keep(chunk, std::move(recipe));
}

// `begin`: where on the disk the extent does.
Result<DiskAnswer> DiskReader::read_frame(BlockRange wanted, uint64_t begin, const chunk::Extent& extent) {
  const uint64_t before = wanted.first - begin;
  const BlockRange range{wanted.first, std::min(wanted.count, extent.blocks - before)};
  const BlockRange in_frame{extent.first + before, range.count};
  TRY_ASSIGN(const FrameCache::FramePtr found, frame(*extent.frame, in_frame));
  const uint64_t offset = in_frame.first * image::kBlockBytes, bytes = range.count * image::kBlockBytes;
  if (!range_within(offset, bytes, found->plain.size()))
    return fail(ErrorKind::kCorrupt, "a recipe uses blocks that frame " + std::to_string(*extent.frame) + " does not have");
  return DataBlocks{range, found, std::span(found->plain).subspan(offset, bytes)};
}

// The blocks are proven. Of a frame that was fetched for others the first of them may be damaged: then it is fetched anew, and
// proven as a whole.
Result<FrameCache::FramePtr> DiskReader::frame(chunk::FrameId id, BlockRange wanted) {
  if (common_ && chunk::is_common(id)) return common_->frame(id & ~chunk::kCommonFrame, wanted);
  const Fetcher& fetcher = images_.fetcher();
  for (BlockRange fetched = wanted;; fetched = {0, chunk::kFrameBlocks}) {
    TRY_ASSIGN(const FrameCache::FramePtr found, frames_.get(id, [&] { return images_.fetcher().frame(id, fetched); }));
    if (fetcher.prove(id, *found, wanted)) return found;
    frames_.drop(id, found);
    if (fetched.count == chunk::kFrameBlocks) return fail(ErrorKind::kIo, "frame " + std::to_string(id) + " is damaged");
  }
}

// The first block at or after the beginning of `chunk` whose chunk is not all zero, or the end of the disk.
Result<uint64_t> DiskReader::end_of_zeros(OpenImage& image, uint64_t chunk) const {
  uint64_t at = chunk;
  for (; at < image.chunks() && at - chunk < kMostZeroChunks; at++) {
    TRY_ASSIGN(const Digest name, image.chunk(at));
    if (name != image::kZeros) break;
  }
  return std::min(at * image::chunk_blocks(image.root().kind), image.blocks());
}

std::optional<chunk::ChunkCache::Lease> DiskReader::lease(OpenImage& image, uint64_t chunk) {
  if (chunk >= image.chunks()) return std::nullopt;
  const Result<Digest> name = image.chunk(chunk);
  if (!name || *name == image::kZeros) return std::nullopt;
  std::optional<chunk::ChunkCache::Lease> lease = cached(*name);
  if (lease) lease->close_fd();
  return lease;
}

void DiskReader::when_cache_is_leased(const void* who, std::function<void()> call) {
  if (common_) common_->when_cache_is_leased(who, call);
  const std::lock_guard lock(leased_mutex_);
  if (call)
    when_leased_[who] = std::move(call);
  else
    when_leased_.erase(who);
}

void DiskReader::tell_cache_is_leased() {
  const std::lock_guard lock(leased_mutex_);
  for (const auto& [who, call] : when_leased_) call();
}

void DiskReader::note_miss(const Digest& chunk) {
  bool fill;
  {
    const std::lock_guard lock(misses_mutex_);
    fill = misses_.is_worth_filling(chunk);
  }
  if (fill) filler_.wish(chunk);
}

}  // namespace ramet::host
