// commit/progress.h - how far a piece of work is, told to whoever waits for it. Thread: that of the work.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace ramet::commit {

struct Progress {
  uint64_t done_bytes = 0, total_bytes = 0;  // of this step; of the image, holes included, when it is stored or exported
  std::string_view step = "store";           // "unpack", "convert" before that
};
using OnProgress = std::function<void(const Progress&)>;

}  // namespace ramet::commit
