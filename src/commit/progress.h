// commit/progress.h - how far a piece of work is, told to whoever waits for it. Thread: that of the work.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace ramet::commit {

struct Progress {
  uint64_t done_bytes = 0, total_bytes = 0;  // of this step; total 0: not known
  std::string_view step = "store";           // "unpack", "convert" before that; "pack" of an export, "write" after it
};
using OnProgress = std::function<void(const Progress&)>;

}  // namespace ramet::commit
