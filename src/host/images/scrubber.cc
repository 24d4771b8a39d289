#include "host/images/scrubber.h"

#include <algorithm>

#include "base/log.h"

namespace ramet::host {

size_t Scrubber::next_pack() {
  Result<std::vector<chunk::Index::Pack>> packs = images_.chunks().index().packs();
  if (!packs || packs->empty()) return 0;
  std::ranges::sort(*packs, {}, &chunk::Index::Pack::id);
  const auto next = std::ranges::find_if(*packs, [&](const chunk::Index::Pack& p) { return !last_ || p.id > *last_; });
  const chunk::PackId id = next == packs->end() ? packs->front().id : next->id;
  last_ = id;
  const Result<chunk::PackTail> tail = chunk::read_pack_tail(images_.chunks().packs(), id);
  if (!tail) {
    if (tail.error().kind() == ErrorKind::kNotFound) return 0;  // collected meanwhile
    log_error("store: " + tail.error().to_string());
    return 1;
  }
  size_t damaged = 0;
  for (const chunk::FrameEntry& frame : tail->frames)
    if (const Status good = images_.fetcher().check_frame(frame.id); !good)
      damaged += good.error().kind() != ErrorKind::kNotFound;
  return damaged;
}

}  // namespace ramet::host
