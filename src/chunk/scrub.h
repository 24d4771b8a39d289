// chunk/scrub.h - a store looked over in the background, one pack or chunk at a time, round after round.
// How fast is the caller's business: each step says how much it read. Where it is is a value that the caller may keep, to go on
// there after a restart. What a collection takes away meanwhile is no problem. Not here: repair. Thread: one; beside all use of
// the store, which outlives it.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "chunk/inspection.h"

namespace ramet::chunk {

class Scrub {
 public:
  // What was looked at last, in the order of their names: first all packs, then all chunks.
  struct Position {
    enum class Part { kPacks, kChunks } part = Part::kPacks;
    std::optional<PackId> pack;
    std::optional<Digest> chunk;
  };
  explicit Scrub(const Store& store) : store_(store) {}
  Scrub(const Store& store, Position from) : store_(store), position_(std::move(from)) {}

  struct Step {
    std::vector<Problem> problems;
    uint64_t bytes_read = 0;
    bool end_of_round = false;  // nothing was looked at: the next step begins a round
  };
  // Errors: only when the index cannot be listed.
  Result<Step> step();
  const Position& position() const { return position_; }

 private:
  Status list();
  template <class Name>
  Step look_at(const Name& name);

  const Store& store_;
  Position position_;
  bool listed_ = false;
  std::deque<PackId> packs_;  // of this round, still to come
  std::deque<Digest> chunks_;
};

}  // namespace ramet::chunk
