// host/watcher.h - one thread that waits for many descriptors: control connections and pidfds of all machines.
// Not here: what an event means. Owner: Host. Thread: watch/unwatch from any; callbacks run on the watcher's thread, must not
// block, and may call unwatch (also for themselves).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet::host {

class Watcher {
 public:
  using Callback = std::function<void()>;  // the descriptor is readable or hung up
  static Result<std::unique_ptr<Watcher>> start();
  ~Watcher();

  // Level-triggered. The descriptor is borrowed: unwatch() before closing it.
  Result<uint64_t> watch(int fd, Callback callback);
  // No more callbacks, from within the callback; the token stays, so that unwatch() by another thread still waits for its end.
  void mute(uint64_t token);
  // When it returns the callback is not running and never runs again (unless called from the callback itself).
  void unwatch(uint64_t token);

 private:
  struct Entry {
    int fd = -1;
    Callback callback;
    std::mutex running;  // held while the callback runs
    bool dead = false;   // guarded by running
  };
  Watcher() = default;
  void loop();

  UniqueFd epoll_, stop_event_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<Entry>> entries_;  // guarded by mutex_; shared with the running callback
  uint64_t next_token_ = 1;                                       // guarded by mutex_
  std::thread thread_;
};

}  // namespace ramet::host
