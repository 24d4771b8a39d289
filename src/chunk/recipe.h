// chunk/recipe.h - what a stored chunk consists of: extents of 4 KiB blocks, each zero or literal blocks of a frame.
//
// Problem: chunks of 16 MiB from different images hardly ever agree as a whole, their blocks do. Idea: a chunk is named by the
// digest of its bytes and stored as a recipe; blocks that the store has already are pointed at. A reference is always to the
// literal itself, never to another recipe, so that reading needs one step. What was measured: docs/formats/pack.md.
//
// Encoded: number of frames; their ids, each as the difference to the one before; extents, a varint (blocks << 1 | literal)
// each and for a literal one the index of its frame and the first block there. Pure: no I/O; nothing is allocated before its
// limit was checked. Thread: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ramet::chunk {

inline constexpr size_t kBlockBytes = 4096;
inline constexpr uint32_t kFrameBlocks = 32;       // at most, in a frame: 128 KiB
inline constexpr uint32_t kMaxChunkBlocks = 4096;  // 16 MiB

// Unique in its domain and never used again; says nothing about where the frame lies.
using FrameId = uint64_t;
// Set in recipes for frames of the public store that this one may refer to (store.h, Options::common); never in a frame's own
// id.
inline constexpr FrameId kCommonFrame = FrameId{1} << 63;
inline bool is_common(FrameId id) { return (id & kCommonFrame) != 0; }

struct Extent {
  uint32_t blocks = 0;
  std::optional<FrameId> frame;  // absent: zeros
  uint32_t first = 0;            // block in the frame
  friend bool operator==(const Extent&, const Extent&) = default;
};

struct Recipe {
  std::vector<Extent> extents;

  uint32_t blocks() const;
  // Each frame once, in order of first use.
  std::vector<FrameId> frames() const;
  // Appends, joining with the last extent where both are one.
  void append(const Extent& extent);
  friend bool operator==(const Recipe&, const Recipe&) = default;
};

// Requires: each extent has blocks and lies in its frame; at most kMaxChunkBlocks in all.
std::string encode_recipe(const Recipe& recipe);
// nullopt: malformed, over a limit, or another one than encode_recipe() writes for it.
std::optional<Recipe> decode_recipe(std::span<const std::byte> bytes);

}  // namespace ramet::chunk
