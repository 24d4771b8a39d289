// range_lock.h - keeps requests on the same blocks apart where one of them must be alone: a write of part of a block reads the
// whole block first, and a write that comes between would be lost. Requests on other blocks pass. Held across I/O, which a
// mutex must not be. Rejected: one shared_mutex for the disk (a partial write that waits for the daemon would stop every
// other). Not here: any order between whole-block writes; a disk promises none. Thread: any. Owner: ByteDisk. Errors: none.
// Requires: a thread holds at most one range at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>

#include "image/block.h"

namespace ramet::nbd {

class RangeLock {
 public:
  enum class Mode {
    kShared,  // together with others that share
    kAlone,
  };
  // Releases when it ends.
  class Hold {
   public:
    Hold(RangeLock& lock, image::BlockRange range, Mode mode);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    struct Entry {
      image::BlockRange range;
      Mode mode;
    };
    friend class RangeLock;
    RangeLock& lock_;
    std::list<Entry>::iterator entry_;
  };

 private:
  bool is_free(image::BlockRange range, Mode mode) const;

  std::mutex mutex_;  // guards all below
  std::condition_variable released_;
  std::list<Hold::Entry> held_;  // as many as there are requests in flight: few
  unsigned waiting_ = 0;
};

}  // namespace ramet::nbd
