#include "api/console_follow.h"

#include <poll.h>

namespace ramet::api {

std::string ConsoleFollower::advance(std::string now) {
  // The log drops its oldest text when it is full, so the end of what we saw is looked for, not its start.
  constexpr size_t kAnchorBytes = 512;
  size_t begin = 0;
  if (now.size() >= seen_.size() && now.compare(0, seen_.size(), seen_) == 0) {
    begin = seen_.size();
  } else if (!seen_.empty()) {
    const std::string_view anchor = std::string_view(seen_).substr(seen_.size() - std::min(kAnchorBytes, seen_.size()));
    const size_t at = now.rfind(anchor);
    if (at != std::string::npos) begin = at + anchor.size();
  }
  std::string added = now.substr(begin);
  seen_ = std::move(now);
  return added;
}

bool wait_for_client(Exchange& exchange, Milliseconds pause) {
  pollfd p{exchange.client_fd(), POLLRDHUP, 0};
  ::poll(&p, 1, static_cast<int>(pause.count()));
  return !exchange.nobody_waits();
}

}  // namespace ramet::api
