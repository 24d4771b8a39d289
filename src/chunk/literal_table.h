// chunk/literal_table.h - which literal blocks there are and how they are found by their prints: all of them.
//
// Problem: guest memory is full of blocks of disks, but in no order, so a table of some blocks misses most of them. Idea: the
// table holds numbers of four bytes and no prints; a number leads to its print, which is kept anyhow for the neighbours. In
// memory: per GiB of literals 4 MiB of prints, 1 MiB of frames, 1.5 to 3 MiB of table.
//
// Two kinds of users: a batch matches (many at once, shared), a commit or a collection changes (alone).
// Thread: every method from many threads at once.
#pragma once

#include <boost/unordered/unordered_flat_set.hpp>
#include <map>
#include <shared_mutex>
#include <span>
#include <vector>

#include "chunk/matcher.h"
#include "chunk/pack_format.h"

namespace ramet::chunk {

class LiteralTable final : public Literals {
 public:
  LiteralTable() : table_(0, Hash{&frames_}, Equal{&frames_}) {}

  // All frames of a pack, whose prints it takes over.
  void add(PackTail&& tail);
  // One block more at the end of a frame.
  void append(FrameId frame, const BlockPrint& print);
  // The prints of the frame, which cannot be found any more from now on; none if it is not known.
  std::vector<BlockPrint> take(FrameId frame);
  void put_back(FrameId frame, std::vector<BlockPrint> prints);
  size_t frames() const;

  // Of equal literals the one that was there first.
  std::optional<BlockRef> find(const BlockPrint& print) const override;
  std::optional<BlockPrint> print_of(const BlockRef& ref) const override;
  std::optional<BlockRef> next(const BlockRef& ref) const override;
  std::optional<BlockRef> previous(const BlockRef& ref) const override;

 private:
  struct Frame {
    FrameId id = 0;
    std::vector<BlockPrint> prints;
  };
  // The frame's place in frames_ times kFrameBlocks, plus the block: enough for 16 TiB of literals.
  using Number = uint32_t;
  // By the print that a number leads to.
  struct Hash {
    using is_transparent = void;
    using is_avalanching = void;
    const std::vector<Frame>* frames;
    size_t operator()(const BlockPrint& print) const;
    size_t operator()(Number n) const { return (*this)((*frames)[n / kFrameBlocks].prints[n % kFrameBlocks]); }
  };
  struct Equal {
    using is_transparent = void;
    const std::vector<Frame>* frames;
    bool operator()(Number a, Number b) const { return (*this)(a, (*frames)[b / kFrameBlocks].prints[b % kFrameBlocks]); }
    bool operator()(Number a, const BlockPrint& print) const {
      return (*frames)[a / kFrameBlocks].prints[a % kFrameBlocks] == print;
    }
    bool operator()(const BlockPrint& print, Number a) const { return (*this)(a, print); }
  };
  void add_frame(FrameId id, std::vector<BlockPrint> prints);
  Number place_for(FrameId id);

  mutable std::shared_mutex mutex_;  // guards all below
  std::vector<Frame> frames_;
  std::vector<Number> free_places_;
  std::map<FrameId, Number> places_;  // in frames_; in order, for the neighbours
  boost::unordered_flat_set<Number, Hash, Equal> table_;
};

}  // namespace ramet::chunk
