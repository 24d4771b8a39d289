// chunk/matcher.h - which blocks of a new chunk the store has already.
//
// Candidates for a block, in this order: the block after the one that the block before was found at; the same position in the
// parent chunk; the table of prints. A hit from the table is extended backwards as well: a table need not know every block.
// Each frame used costs a read (and, from the remote tier, a request) when the chunk is read cold, so their number is capped:
// the ones that save the fewest blocks are given up, and those blocks stored again. Pure apart from the lookups it is given.
// Thread: one chunk, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "chunk/digest.h"
#include "chunk/recipe.h"

namespace ramet::chunk {

// A literal block.
struct BlockRef {
  FrameId frame = 0;
  uint32_t block = 0;  // in the frame
  friend auto operator<=>(const BlockRef&, const BlockRef&) = default;
};

// The literals that may be referred to: those of the domain, of public ones, and of the batch in progress.
class Literals {
 public:
  virtual ~Literals() = default;
  // A literal with this print, if the table knows one.
  virtual std::optional<BlockRef> find(const BlockPrint& print) const = 0;
  // The print of a literal; nullopt: there is none (any more) that may be referred to.
  virtual std::optional<BlockPrint> print_of(const BlockRef& ref) const = 0;
  // Its neighbours in the order in which they were stored.
  virtual std::optional<BlockRef> next(const BlockRef& ref) const = 0;
  virtual std::optional<BlockRef> previous(const BlockRef& ref) const = 0;
};

// What a new chunk looks like: one entry per block.
struct BlockFacts {
  bool zero = false;
  Digest digest;
  BlockPrint print() const { return print_of(digest); }
};
// Requires: whole blocks.
std::vector<BlockFacts> facts_of(std::span<const std::byte> chunk);

struct MatchLimits {
  uint32_t max_frames = kMaxChunkBlocks;  // of those not written by this chunk itself
};

// One entry per block: where it is, or nullopt for zeros and for what has to be stored.   `parent` may be null.
std::vector<std::optional<BlockRef>> match(std::span<const BlockFacts> blocks, const Recipe* parent, const Literals& literals,
                                           MatchLimits limits);

}  // namespace ramet::chunk
