// api/console_follow.h - what was added to a bounded console log between two looks at it. Not here: reading it. Thread: one.
#pragma once

#include <string>

#include "api/exchange.h"

namespace ramet::api {

class ConsoleFollower {
 public:
  explicit ConsoleFollower(std::string seen) : seen_(std::move(seen)) {}
  // The text that is new in `now`. When the old text was pushed out completely, all of `now`.
  std::string advance(std::string now);

 private:
  std::string seen_;
};

// Waits; false when the client went away or the daemon stops.
bool wait_for_client(Exchange& exchange, Milliseconds pause);

}  // namespace ramet::api
