// host/images/disk_reader.h - blocks of images: where are they, and their bytes. An answer is the largest piece that is at
// hand:
//
//   the cache has the chunk         a descriptor of all of it: the reader needs nothing more of it from us
//   zeros in manifest or recipe     the range
//   else                            the blocks asked for, as far as they are neighbours in one frame, checked; and, where the
//                                   chunk is worth it, it is fetched whole in the background (fill_policy.h)
//
// What the images' store does not have and the public one before which it stands has is answered by that one's reader, so that
// all tenants share its cached chunks and decoded frames; of private data nothing is shared, and nothing else is asked.
// Wrong bytes never: damage is fetched anew once (fetcher.h), then it is an I/O error. Not here: sockets (chunk_server.h).
// Thread: read() from many threads; one of its own (filler.h). A resource; must outlive its answers' leases.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <variant>

#include "host/images/fetcher.h"
#include "host/images/fill_policy.h"
#include "host/images/filler.h"
#include "host/images/frame_cache.h"
#include "host/images/image_store.h"
#include "host/images/recipe_cache.h"
#include "image/block.h"

namespace ramet::host {

struct ZeroBlocks {
  image::BlockRange range;
};
struct DataBlocks {
  image::BlockRange range;     // at most a frame's
  FrameCache::FramePtr frame;  // owns what `bytes` points at
  std::span<const std::byte> bytes;
};
struct WholeChunk {
  uint64_t number = 0;
  chunk::ChunkCache::Lease lease;
};
// Each holds the first block that was asked for.
using DiskAnswer = std::variant<ZeroBlocks, DataBlocks, WholeChunk>;

enum class MayLend { kChunks, kNothing };  // whether the reader can hold a descriptor more

class DiskReader {
 public:
  struct Options {
    FillPolicy fill;
    size_t decoded_bytes = 16u << 20;  // of frames kept decoded
    DiskReader* common = nullptr;      // of the public store before which `images` stands, if it does; outlives this one
  };
  DiskReader(ImageStore& images, Options options);

  // Requires: at least one block is asked for.   Errors: kInvalid (the first one is not on the disk), kIo, kUnavailable.
  Result<DiskAnswer> read(OpenImage& image, image::BlockRange wanted, MayLend may_lend);
  // The chunk if the cache has it; for a reader that has a descriptor of it already.
  std::optional<chunk::ChunkCache::Lease> lease(OpenImage& image, uint64_t chunk);
  // Called when a chunk does not fit because readers hold what is in the cache, here or in public. One call for each `who`, an
  // empty one for none; the one before is not called any more when this returns.
  void when_cache_is_leased(const void* who, std::function<void()> call);
  // Until nothing is being filled (tests).
  void drain() { filler_.drain(); }

 private:
  Result<DiskAnswer> look(OpenImage& image, image::BlockRange wanted, MayLend may_lend);
  // What this domain's cache has.
  std::optional<chunk::ChunkCache::Lease> cached(const Digest& name);
  Result<DiskAnswer> read_stored(OpenImage& image, image::BlockRange wanted, const Digest& name);
  Result<RecipeCache::RecipePtr> recipe_of(const Digest& chunk);
  Result<DiskAnswer> read_frame(image::BlockRange wanted, uint64_t begin, const chunk::Extent& extent);
  Result<FrameCache::FramePtr> frame(chunk::FrameId id, image::BlockRange wanted);
  Result<uint64_t> end_of_zeros(OpenImage& image, uint64_t chunk) const;
  void note_miss(const Digest& chunk);
  void tell_cache_is_leased();

  ImageStore& images_;
  DiskReader* const common_;  // may be null
  FrameCache frames_;
  RecipeCache recipes_;
  std::mutex leased_mutex_;                                   // held across the calls, which do not wait
  std::map<const void*, std::function<void()>> when_leased_;  // guarded by leased_mutex_
  std::mutex misses_mutex_;
  MissCounter misses_;  // guarded by misses_mutex_
  Filler filler_;       // last: its thread uses what is above
};

}  // namespace ramet::host
