#include "host/fork_outcomes.h"

#include "base/log.h"

namespace ramet::host {

Status ForkOutcomes::note(const ForkIntent& fork, bool swapped) {
  const Status noted = settle(fork.id, swapped);
  if (noted) return {};
  const std::lock_guard lock(mutex_);
  if (kept_.emplace(fork.id, Outcome{fork.parent, swapped}).second)
    log_error("the outcome of a fork of " + fork.parent + " cannot be noted yet: " + noted.error().to_string());
  return noted;
}

Status ForkOutcomes::note_all_of(const std::string& machine_id) {
  for (const auto& [operation, outcome] : copy())
    if (outcome.parent == machine_id) TRY(settle(operation, outcome.swapped));
  return {};
}

size_t ForkOutcomes::try_again() {
  size_t noted = 0;
  for (const auto& [operation, outcome] : copy()) {
    if (!settle(operation, outcome.swapped)) continue;
    log_info("the outcome of a fork of " + outcome.parent + " is noted now");
    noted++;
  }
  return noted;
}

size_t ForkOutcomes::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

Status ForkOutcomes::settle(const std::string& operation_id, bool swapped) {
  Status settled = registry_.settle_fork(operation_id, swapped);
  if (!settled && settled.error().kind() == ErrorKind::kNoSpace) {
    make_room_();
    settled = registry_.settle_fork(operation_id, swapped);
  }
  if (!settled) return settled;
  const std::lock_guard lock(mutex_);
  kept_.erase(operation_id);
  return {};
}

std::map<std::string, ForkOutcomes::Outcome> ForkOutcomes::copy() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

}  // namespace ramet::host
