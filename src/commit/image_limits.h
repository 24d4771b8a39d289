// commit/image_limits.h - how much a foreign image may ask for before it is refused. Counted in what comes out of
// decompression, never in what a header claims. Thread: values; admit() by the thread of the work.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "base/result.h"

namespace ramet::commit {

inline constexpr uint64_t kAdmitBytes = 64u << 20;  // written between two questions whether there is room

struct ImageLimits {
  uint64_t max_disk_bytes = 4ull << 40;        // of a disk image, holes included
  uint64_t max_unpacked_bytes = 64ull << 30;   // of all files of a tree together, holes included
  uint64_t max_metadata_bytes = 256ull << 20;  // names, link targets and extended attributes of a tree
  uint32_t max_files = 1'000'000;              // of a tree; directories and links count
  uint32_t max_files_per_directory = 60'000;   // an inode has at most 65,000 links, one from each directory in it
  // Whether so many bytes more of work may be written; asked again and again as they come.   Errors: kNoSpace, kCancelled.
  std::function<Status(uint64_t bytes)> admit = [](uint64_t) { return Status(); };
  std::chrono::seconds program_time = std::chrono::hours(2);  // of one run of a foreign program
};

}  // namespace ramet::commit
