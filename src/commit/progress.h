// commit/progress.h - how far a piece of work is, told to whoever waits for it. Thread: that of the work.
#pragma once

#include <cstdint>
#include <functional>

namespace ramet::commit {

struct Progress {
  uint64_t done_bytes = 0, total_bytes = 0;  // of the image, holes included
};
using OnProgress = std::function<void(const Progress&)>;

}  // namespace ramet::commit
