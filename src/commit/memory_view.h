// commit/memory_view.h - the RAM of a machine that stands still, as somebody who commits it sees it.
// Not here: where it is (process_memory.h, memory_files.h). Thread: what is const from many threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/result.h"

namespace ramet::commit {

class MemoryView {
 public:
  virtual ~MemoryView() = default;
  virtual uint64_t size_bytes() const = 0;
  // Runs of whole pages of 4 KiB that may differ from the image below, in order and none twice. All others are the image's.
  // Errors: those of `visit`, which end it; kUnavailable, kIo.
  using Visit = std::function<Status(uint64_t offset, uint64_t length)>;
  virtual Status visit_own(const Visit& visit) const = 0;
  // Requires: within such a run.   Errors: kUnavailable (whose memory it was is gone), kCorrupt, kIo.
  virtual Status read(uint64_t offset, std::span<std::byte> out) const = 0;
};

}  // namespace ramet::commit
