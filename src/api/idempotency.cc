#include "api/idempotency.h"

namespace ramet::api {

Status IdempotencyTable::make_room() {
  const Deadline now = MonotonicClock::now();
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool drop = !it->running && (it->expires <= now || entries_.size() >= kMaxKeys);
    if (!drop && it->expires > now && entries_.size() < kMaxKeys) break;  // the rest is younger
    if (!drop) {
      ++it;
      continue;
    }
    by_name_.erase(it->name);
    it = entries_.erase(it);
  }
  if (entries_.size() >= kMaxKeys) return fail(ErrorKind::kUnavailable, "4096 requests with an Idempotency-Key are running");
  return {};
}

Result<Response> IdempotencyTable::once(std::string_view scope, std::string_view key, std::string_view body, Deadline deadline,
                                        const std::function<Response()>& execute) {
  const std::string name = std::string(scope) + "\n" + std::string(key);
  std::unique_lock lock(mutex_);
  while (true) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) break;
    const Entry& entry = *found->second;
    if (entry.body != body)
      return tl::unexpected(
          Error(ErrorKind::kConflict, "the Idempotency-Key `" + std::string(key) + "` was used with another body")
              .with_hint("Use a new key for a new request."));
    if (!entry.running) return entry.response;
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout)
      return fail(ErrorKind::kTimeout, "the first request with the Idempotency-Key `" + std::string(key) + "` still runs");
  }
  TRY(make_room());
  const Entries::iterator mine =
      entries_.insert(entries_.end(), Entry{name, std::string(body), true, {}, deadline_after(kLifetime)});
  by_name_[name] = mine;

  lock.unlock();
  Response response = execute();
  lock.lock();

  mine->running = false;
  mine->response = response;
  if (response.status >= 500) {
    by_name_.erase(name);
    entries_.erase(mine);
  }
  changed_.notify_all();
  return response;
}

}  // namespace ramet::api
