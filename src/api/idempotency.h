// api/idempotency.h - answers of creates and forks by Idempotency-Key, so that a repetition after a lost answer makes no second
// sandbox. Kept in memory: bounded, and forgotten when the daemon restarts (written in api/openapi.yaml).
// Not here: what is executed. Thread: every method may be called concurrently. A second request with a key whose first one is
// still running waits for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "api/exchange.h"
#include "base/clock.h"

namespace ramet::api {

class IdempotencyTable {
 public:
  static constexpr size_t kMaxKeys = 4096;
  static constexpr std::chrono::hours kLifetime{24};

  // Runs `execute` once per (scope, key); later callers get the remembered answer. Answers of status 500 and above are not
  // remembered: the caller may try again.
  // Errors: kConflict (same key, other body), kTimeout (the first request still runs at the deadline), kUnavailable (table full
  // of running ones).
  Result<Response> once(std::string_view scope, std::string_view key, std::string_view body, Deadline deadline,
                        const std::function<Response()>& execute);

 private:
  struct Entry {
    std::string name;  // scope and key
    std::string body;
    bool running = true;
    Response response;
    Deadline expires;
  };
  using Entries = std::list<Entry>;  // oldest first

  Status make_room();

  std::mutex mutex_;
  std::condition_variable changed_;
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> by_name_;
};

}  // namespace ramet::api
