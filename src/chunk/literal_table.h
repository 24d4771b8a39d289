// chunk/literal_table.h - which literal blocks there are and how they are found: the prints of all of them, and a table from
// prints to places that knows one block in four. In memory: per GiB of literals 4 MiB of prints and 2 MiB of table.
//
// Two kinds of users: a batch matches (many at once, shared), a commit or a collection changes (alone).
// Thread: every method from many threads at once.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <map>
#include <shared_mutex>
#include <span>
#include <vector>

#include "chunk/matcher.h"
#include "chunk/pack_format.h"

namespace ramet::chunk {

class LiteralTable final : public Literals {
 public:
  static constexpr uint32_t kSampled = 4;  // one block in so many is in the table

  // All frames of a pack, whose prints it takes over. One block in kSampled can be found.
  void add(PackTail&& tail);
  // One block more at the end of a frame; it can be found.
  void append(FrameId frame, const BlockPrint& print);
  // The prints of the frame, which cannot be found any more from now on; none if it is not known.
  std::vector<BlockPrint> take(FrameId frame);
  void put_back(FrameId frame, std::vector<BlockPrint> prints);
  size_t frames() const;

  std::optional<BlockRef> find(const BlockPrint& print) const override;
  std::optional<BlockPrint> print_of(const BlockRef& ref) const override;
  std::optional<BlockRef> next(const BlockRef& ref) const override;
  std::optional<BlockRef> previous(const BlockRef& ref) const override;

 private:
  void add_frame(FrameId frame, std::vector<BlockPrint> prints);

  mutable std::shared_mutex mutex_;  // guards the two below
  std::map<FrameId, std::vector<BlockPrint>> frames_;
  // By the first 8 bytes of the print. An entry may be out of date: what it leads to is compared with the whole print.
  boost::unordered_flat_map<uint64_t, BlockRef> table_;
};

}  // namespace ramet::chunk
