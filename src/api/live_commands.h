// api/live_commands.h - the commands whose streams are open right now, by sandbox and pid: input that comes with another
// request goes through the stream that exists instead of a new connection into the guest for every piece. Not here: commands
// nobody streams (host::Host::write_stdin serves them). Thread: every method may be called concurrently.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "host/streams.h"

namespace ramet::api {

class LiveCommands {
 public:
  void add(const std::string& id, uint32_t pid, std::shared_ptr<host::ExecStream> stream) {
    const std::lock_guard lock(mutex_);
    streams_[{id, pid}] = std::move(stream);
  }
  void remove(const std::string& id, uint32_t pid) {
    const std::lock_guard lock(mutex_);
    streams_.erase({id, pid});
  }
  // nullptr when nobody streams it. Shared with the request that reads its events: that one may end first, the stream then
  // fails.
  std::shared_ptr<host::ExecStream> find(const std::string& id, uint32_t pid) {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find({id, pid});
    return found == streams_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, uint32_t>, std::shared_ptr<host::ExecStream>> streams_;  // guarded by mutex_
};

}  // namespace ramet::api
