// vmm/memory/page_map.h - which pages of this process's memory are private to it, read from /proc/self/pagemap.
// Not here: what that means for a bill (the daemon reads the same file from outside). Thread: stateless.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet::vmm {

class PageMap {
 public:
  static Result<PageMap> open();
  // Calls `found` for every run of anonymous pages (present or swapped, not of a file) in the range, in order. The shared zero
  // page counts as anonymous: it looks the same here.   Requires: range is page-aligned.
  Status for_each_anonymous(std::span<std::byte> range, const std::function<void(std::span<std::byte>)>& found) const;
  // True when no page of the range is anonymous.
  Result<bool> none_anonymous(std::span<std::byte> range) const;

 private:
  explicit PageMap(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace ramet::vmm
