// host/images/recipe_cache.h - recipes of the chunks read last: to look one up and decode it takes as long as to read a frame.
// A recipe says which blocks of which frames a chunk consists of, and a frame never changes, so what is kept is right for as
// long as its frames can be found; where one is not, forget() and look again. Thread: every method from many threads.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/digest.h"
#include "chunk/recipe.h"

namespace ramet::host {

class RecipeCache {
 public:
  using RecipePtr = std::shared_ptr<const chunk::Recipe>;

  explicit RecipeCache(size_t max_recipes) : max_recipes_(max_recipes) {}

  // Null: it is not here.
  RecipePtr find(const Digest& chunk);
  RecipePtr keep(const Digest& chunk, chunk::Recipe recipe);
  void forget(const Digest& chunk);

 private:
  using Used = std::list<std::pair<Digest, RecipePtr>>;
  using ByChunk = std::unordered_map<Digest, Used::iterator, DigestHash>;
  void remove(ByChunk::iterator found);

  const size_t max_recipes_;
  std::mutex mutex_;
  Used used_;         // guarded by mutex_; least recently first
  ByChunk by_chunk_;  // guarded by mutex_
};

}  // namespace ramet::host
