#include "chunk/scrub.h"

#include <algorithm>

namespace ramet::chunk {

Status Scrub::list() {
  TRY_ASSIGN(const std::vector<Index::Pack> packs, store_.index().packs());
  TRY_ASSIGN(const std::vector<Digest> chunks, store_.index().chunks());
  for (const Index::Pack& pack : packs)
    if (position_.part == Position::Part::kPacks && (!position_.pack || pack.id > *position_.pack)) packs_.push_back(pack.id);
  for (const Digest& chunk : chunks)
    if (!position_.chunk || chunk > *position_.chunk) chunks_.push_back(chunk);
  std::ranges::sort(packs_);
  std::ranges::sort(chunks_);
  listed_ = true;
  return {};
}

Result<Scrub::Step> Scrub::step() {
  if (!listed_) TRY(list());
  if (!packs_.empty()) {
    const PackId id = packs_.front();
    packs_.pop_front();
    position_.pack = id;
    return look_at(id);
  }
  position_.part = Position::Part::kChunks;
  if (!chunks_.empty()) {
    const Digest digest = chunks_.front();
    chunks_.pop_front();
    position_.chunk = digest;
    return look_at(digest);
  }
  position_ = {};
  listed_ = false;
  return Step{.problems = {}, .end_of_round = true};
}

template <class Name>
Scrub::Step Scrub::look_at(const Name& name) {
  Inspection inspection(store_);
  inspection.look_at(name);
  return {.problems = std::move(inspection.report.problems), .bytes_read = inspection.bytes_read};
}

}  // namespace ramet::chunk
