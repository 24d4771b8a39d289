#include "cli/steps.h"

#include <algorithm>

namespace ramet::cli {

void Steps::reach(std::string_view step, uint64_t done_bytes, uint64_t total_bytes) {
  if (step != step_) {
    finish();
    step_ = step;
    done_bytes_ = 0;
    line_.emplace(step_ + " " + what_, total_bytes, quiet_);
  }
  if (done_bytes > done_bytes_) line_->add(done_bytes - done_bytes_);
  done_bytes_ = std::max(done_bytes_, done_bytes);
}

void Steps::finish() {
  if (line_) line_->done();
  line_.reset();
}

}  // namespace ramet::cli
