// chunk/batch_literals.h - the literals that a batch may refer to: its own, those of its store, those of the public store.
// Not for users of the folder. Must not outlive what it looks into. Thread: as that.
#pragma once

#include <vector>

#include "chunk/matcher.h"

namespace ramet::chunk {

inline std::optional<BlockRef> as_common(std::optional<BlockRef> ref) {
  if (ref) ref->frame |= kCommonFrame;
  return ref;
}

// The literals of the public store, by the ids that other stores know them by.
class CommonLiterals final : public Literals {
 public:
  explicit CommonLiterals(const Literals& of) : of_(of) {}
  std::optional<BlockRef> find(const BlockPrint& print) const override { return as_common(of_.find(print)); }
  std::optional<BlockPrint> print_of(const BlockRef& ref) const override {
    return is_common(ref.frame) ? of_.print_of(theirs(ref)) : std::nullopt;
  }
  std::optional<BlockRef> next(const BlockRef& ref) const override { return as_common(of_.next(theirs(ref))); }
  std::optional<BlockRef> previous(const BlockRef& ref) const override { return as_common(of_.previous(theirs(ref))); }

 private:
  static BlockRef theirs(const BlockRef& ref) { return {ref.frame & ~kCommonFrame, ref.block}; }
  const Literals& of_;
};

// Several, the first ones first.
class LiteralsInOrder final : public Literals {
 public:
  void append(const Literals& more) { all_.push_back(&more); }
  std::optional<BlockRef> find(const BlockPrint& print) const override {
    for (const Literals* one : all_)
      if (const std::optional<BlockRef> ref = one->find(print)) return ref;
    return std::nullopt;
  }
  std::optional<BlockPrint> print_of(const BlockRef& ref) const override {
    for (const Literals* one : all_)
      if (const std::optional<BlockPrint> print = one->print_of(ref)) return print;
    return std::nullopt;
  }
  std::optional<BlockRef> next(const BlockRef& ref) const override {
    const Literals* const owner = owner_of(ref);
    return owner ? owner->next(ref) : std::nullopt;
  }
  std::optional<BlockRef> previous(const BlockRef& ref) const override {
    const Literals* const owner = owner_of(ref);
    return owner ? owner->previous(ref) : std::nullopt;
  }

 private:
  const Literals* owner_of(const BlockRef& ref) const {
    for (const Literals* one : all_)
      if (one->print_of(ref)) return one;
    return nullptr;
  }
  std::vector<const Literals*> all_;
};

}  // namespace ramet::chunk
