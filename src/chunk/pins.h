// chunk/pins.h - what open batches rely on, and what a collection has condemned: the one place where the two meet.
//
// Problem: a batch finds a chunk or a literal in the store and relies on it, long before anything that a collection asks says
// so. Idea: a batch *pins* whatever it looks at, from before it looks until it is destroyed; while a collection runs no pin is
// let go. A collection may *condemn* only what has no pin, and what is condemned nobody can come to rely on any more: the batch
// stores it anew. Not here: what is dead (collect.cc). A resource. Thread: every method from many threads.
#pragma once

#include <functional>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "chunk/digest.h"
#include "chunk/recipe.h"

namespace ramet::chunk {

class Pins {
 public:
  // The pins of one batch. A resource; must not outlive the Pins.   Thread: one.
  class Holder {
   public:
    explicit Holder(Pins& pins) : pins_(pins) {}
    ~Holder() { pins_.let_go(std::move(held_)); }
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;

    enum class Chunk { kMayBeUsed, kIsCondemned };
    // Pinned either way. Look only afterwards whether the chunk is there.
    Chunk hold(const Digest& digest);
    // Look only afterwards whether they are there: in the literal table, from which condemned ones are gone.
    void hold(std::span<const FrameId> frames);

   private:
    friend class Pins;
    Pins& pins_;
    struct Held {
      std::unordered_set<Digest, DigestHash> chunks;
      std::unordered_set<FrameId> frames;
    } held_;
  };

  // One collection, from the beginning to the end of the object. While it lasts all that is or was held counts as held.
  class Collecting {
   public:
    explicit Collecting(Pins& pins);
    ~Collecting();
    Collecting(const Collecting&) = delete;
    Collecting& operator=(const Collecting&) = delete;

    // False: it is held. Otherwise it is condemned until the end.
    bool condemn(const Digest& digest);
    // False: one of them is held. Otherwise calls `withdraw`, which takes them from where they can be found: all at one moment.
    bool condemn(std::span<const FrameId> frames, const std::function<void()>& withdraw);

   private:
    Pins& pins_;
  };

 private:
  void let_go(Holder::Held held);
  void uncount(const Holder::Held& held);

  std::mutex mutex_;  // guards all below; `withdraw` is called under it
  std::unordered_map<Digest, uint32_t, DigestHash> chunks_;
  std::unordered_map<FrameId, uint32_t> frames_;
  std::unordered_set<Digest, DigestHash> condemned_;
  bool collecting_ = false;
  std::vector<Holder::Held> put_off_;  // to be let go of when the collection ends
};

}  // namespace ramet::chunk
