// cli/steps.h - work in several steps, one after the other: a line of progress for each, from sums instead of parts.
// Thread: one.
#pragma once

#include <optional>
#include <string>

#include "cli/terminal.h"

namespace ramet::cli {

class Steps {
 public:
  Steps(std::string what, bool quiet) : what_(std::move(what)), quiet_(quiet) {}
  // `total_bytes` 0: not known.
  void reach(std::string_view step, uint64_t done_bytes, uint64_t total_bytes);
  // The last one is done.
  void finish();

 private:
  const std::string what_;
  const bool quiet_;
  std::string step_;
  std::optional<Progress> line_;
  uint64_t done_bytes_ = 0;
};

}  // namespace ramet::cli
