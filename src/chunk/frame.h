// chunk/frame.h - up to 32 literal blocks, compressed together (zstd 1; as they are where that does not help).
// Why 128 KiB: one 4 KiB read from a cold frame takes 0.2 ms; larger frames save a few percent of space and cost that in time.
// A frame is checked by the digest of its plain bytes before anybody sees them; where a whole chunk is read, by the chunk's;
// where a few blocks are, by their prints.
// Thread: a codec is one thread's at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "chunk/digest.h"
#include "chunk/recipe.h"
#include "chunk/side_by_side.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace ramet::chunk {

inline constexpr size_t kMaxFrameBytes = kFrameBlocks * kBlockBytes;

enum class FrameCodec : uint8_t { kPlain = 0, kZstd = 1 };

// What a pack's tail says of a frame.
struct FrameEntry {
  FrameId id = 0;
  uint32_t offset = 0;  // in the pack
  uint32_t stored_bytes = 0;
  uint32_t blocks = 0;
  FrameCodec codec = FrameCodec::kPlain;
  Digest digest;  // of the plain bytes
  friend bool operator==(const FrameEntry&, const FrameEntry&) = default;
};

class FrameEncoder {
 public:
  FrameEncoder();
  ~FrameEncoder();
  // Writes the stored form to the beginning of `out`; fills in everything of the entry but id and offset.   Requires: whole
  // blocks, 1 to 32, and the digest of each; out is at least as long as they are.
  FrameEntry encode(std::span<const std::byte> plain, std::span<const Digest> blocks, std::span<std::byte> out);

 private:
  struct Free {
    void operator()(ZSTD_CCtx_s* c) const;
  };
  std::unique_ptr<ZSTD_CCtx_s, Free> context_;
};

// What says that the plain bytes are right: the frame's own digest, or what the caller compares then: the digest of the chunk,
// the prints of the blocks that it wants.
enum class FrameProof { kOwnDigest, kCallers };

class FrameDecoder {
 public:
  FrameDecoder();
  ~FrameDecoder();
  // Requires: plain.size() == entry.blocks * kBlockBytes.   Errors: kCorrupt; `plain` then holds anything.
  Status decode(const FrameEntry& entry, std::span<const std::byte> stored, std::span<std::byte> plain,
                FrameProof proof = FrameProof::kOwnDigest);
  // Memory for the stored form of one, used again for the next.
  std::span<std::byte> room_for(size_t stored_bytes);

 private:
  Digest digest_of_plain(std::span<const std::byte> plain);
  struct Free {
    void operator()(ZSTD_DCtx_s* c) const;
  };
  std::unique_ptr<ZSTD_DCtx_s, Free> context_;
  std::vector<std::byte> room_;
  uint32_t checked_ = 0;
  std::optional<SideBySide> hasher_;  // of a decoder that is kept for many
};

}  // namespace ramet::chunk
