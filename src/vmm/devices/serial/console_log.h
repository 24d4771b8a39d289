// vmm/devices/serial/console_log.h - the guest's console in a file that never grows beyond twice its limit: when it does, the
// last `limit` bytes move to the front. A guest that floods its console costs its own time only. Not here: the UART (device.h),
// reading the log (the daemon does). Thread: any; locks itself. Owner: the machine.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "base/unique_fd.h"

namespace ramet::vmm {

class ConsoleLog {
 public:
  static constexpr uint64_t kDefaultLimitBytes = 1ull << 20;
  explicit ConsoleLog(UniqueFd file = {}, uint64_t limit_bytes = kDefaultLimitBytes);

  // Complete lines are written at once, the rest with flush() or when a good piece is there. Errors lose text, nothing else.
  void append(char c);
  void flush();
  uint64_t total_bytes() const;
  // A forked child's own file; text not yet written is dropped (flush() before the fork).
  void replace(UniqueFd file);

 private:
  void write_pending();
  void keep_the_end();

  const uint64_t limit_bytes_;
  mutable std::mutex mutex_;  // guards all below
  UniqueFd file_;
  uint64_t size_ = 0;  // of the file
  uint64_t total_ = 0;
  std::string pending_;
};

}  // namespace ramet::vmm
