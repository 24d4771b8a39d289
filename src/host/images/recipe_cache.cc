#include "host/images/recipe_cache.h"

namespace ramet::host {

RecipeCache::RecipePtr RecipeCache::find(const Digest& chunk) {
  const std::lock_guard lock(mutex_);
  const auto found = by_chunk_.find(chunk);
  if (found == by_chunk_.end()) return nullptr;
  used_.splice(used_.end(), used_, found->second);
  return found->second->second;
}

RecipeCache::RecipePtr RecipeCache::keep(const Digest& chunk, chunk::Recipe recipe) {
  const auto kept = std::make_shared<const chunk::Recipe>(std::move(recipe));
  const std::lock_guard lock(mutex_);
  if (const auto found = by_chunk_.find(chunk); found != by_chunk_.end()) remove(found);
  by_chunk_[chunk] = used_.emplace(used_.end(), chunk, kept);
  if (used_.size() > max_recipes_) remove(by_chunk_.find(used_.front().first));
  return kept;
}

void RecipeCache::forget(const Digest& chunk) {
  const std::lock_guard lock(mutex_);
  if (const auto found = by_chunk_.find(chunk); found != by_chunk_.end()) remove(found);
}

void RecipeCache::remove(ByChunk::iterator found) {
  used_.erase(found->second);
  by_chunk_.erase(found);
}

}  // namespace ramet::host
