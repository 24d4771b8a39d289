#include "host/images/scrubber.h"

#include <algorithm>

#include "base/log.h"

namespace ramet::host {
namespace {

// What reading it took.
uint64_t tail_bytes(const chunk::PackTail& tail) {
  return chunk::kPackHeaderBytes + chunk::encode_pack_tail(tail).size() + chunk::kPackFooterBytes;
}

}  // namespace

size_t Scrubber::next_pack() {
  last_ = choose();
  return last_ ? damaged_frames(*last_) : 0;
}

std::optional<chunk::PackId> Scrubber::choose() const {
  Result<std::vector<chunk::Index::Pack>> packs = images_.chunks().index().packs();
  if (!packs) return std::nullopt;
  std::erase_if(*packs, [this](const chunk::Index::Pack& p) { return !images_.is_here(p.id); });
  if (packs->empty()) return std::nullopt;
  std::ranges::sort(*packs, {}, &chunk::Index::Pack::id);
  const auto next = std::ranges::find_if(*packs, [this](const chunk::Index::Pack& p) { return !last_ || p.id > *last_; });
  return next == packs->end() ? packs->front().id : next->id;
}

size_t Scrubber::damaged_frames(const chunk::PackId& id) {
  const Result<chunk::PackTail> tail = chunk::read_pack_tail(images_.chunks().packs(), id);
  if (!tail) {
    if (tail.error().kind() == ErrorKind::kNotFound) return 0;  // collected meanwhile
    log_error("store: " + tail.error().to_string());
    return 1;
  }
  images_.counters().checked_bytes += tail_bytes(*tail);
  size_t damaged = 0;
  for (const chunk::FrameEntry& frame : tail->frames) {
    if (!images_.is_here(id)) break;  // its room was wanted
    if (const Status good = images_.fetcher().check_frame(frame.id); !good)
      damaged += good.error().kind() != ErrorKind::kNotFound;
  }
  return damaged;
}

}  // namespace ramet::host
