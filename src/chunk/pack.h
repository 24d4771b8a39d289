// chunk/pack.h - making a pack in memory, and reading one from where it lies.
// Not here: which blocks go into a frame (the batch's business), where a frame is looked up (the index's).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/mapped_region.h"
#include "base/result.h"
#include "chunk/pack_format.h"
#include "chunk/pack_storage.h"
#include "chunk/varint.h"

namespace ramet::chunk {

// Errors: kUnavailable (no source of random numbers).
Result<PackId> random_pack_id();

// A pack that grows until it is full, then is finished and written. A resource. Thread: one at a time.
class PackBuilder {
 public:
  // Reserves address space for the largest pack; memory is used as it grows.   Errors: kNoMemory.
  static Result<PackBuilder> create(const PackId& id);

  const PackId& id() const { return header_.id; }
  bool empty() const { return tail_.frames.empty() && tail_.chunks.empty(); }
  // Whether a frame of this many blocks and a chunk with a recipe of this many bytes surely still fit.
  bool has_room_for(uint32_t frame_blocks, size_t recipe_bytes) const;
  // Requires: room for it; whole blocks, and the digest of each.
  FrameEntry add_frame(FrameId id, std::span<const std::byte> plain, std::span<const Digest> blocks, FrameEncoder& encoder);
  // One that is compressed already.   Requires: as before; `entry` as FrameEncoder made it, `stored` all of its bytes.
  FrameEntry add_frame(FrameId id, FrameEntry entry, std::span<const std::byte> stored, std::span<const Digest> blocks);
  // Requires: room for it.
  void add_chunk(const Digest& digest, const Recipe& recipe);
  const PackTail& tail() const { return tail_; }
  // Tail and footer behind the frames: the bytes of the file. Nothing can be added afterwards.
  std::span<const std::byte> finish();
  // Another pack, in the same memory: fresh memory costs a fault for each of its pages.
  void restart(const PackId& id);

 private:
  PackBuilder(const PackId& id, MappedRegion room) : room_(std::move(room)) { restart(id); }
  FrameEntry append(FrameId id, FrameEntry entry, std::span<const Digest> blocks);
  PackHeader header_;
  MappedRegion room_;
  size_t used_ = 0;
  size_t tail_bytes_ = 0;  // at most
  PackTail tail_;
};

// What the end of a pack says about it.   Errors: kCorrupt, kNotFound, kUnsupported, kIo, kUnavailable.
Result<PackTail> read_pack_tail(const PackStorage& storage, const PackId& id);
// What `read` reads and checks; where the pack is damaged, once more after a refetch of it.   Errors: those of `read`.
Status read_or_refetch(PackStorage& storage, const PackId& id, const std::function<Status()>& read);
// The same of a pack whose bytes are there: all of them against their checksum.   Errors: kCorrupt, kUnsupported.
Result<PackTail> check_pack(std::span<const std::byte> bytes, const PackId& id);
// One frame, checked as `proof` says; where it is damaged, once more after a refetch of its pack.   Requires: plain.size() is
// that of its blocks.   Errors: kCorrupt, kNotFound, kIo, kUnavailable.
Status read_frame(PackStorage& storage, const PackId& id, const FrameEntry& entry, FrameDecoder& decoder,
                  std::span<std::byte> plain, FrameProof proof = FrameProof::kOwnDigest);

}  // namespace ramet::chunk
