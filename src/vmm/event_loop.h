// vmm/event_loop.h - the monitor's single event loop thread: descriptors, timers, and work posted by other threads.
// Not here: what the events mean. Thread: run(), add/modify/remove and timers on the loop's own thread only; post() from any
// thread (also under a device mutex: it only queues). Owner: the VMM's main; a forked child throws the old one away and makes a
// new one. Lock order: callbacks run with no lock held; a device callback takes its device's mutex itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet::vmm {

class EventLoop {
 public:
  using FdCallback = std::function<void(uint32_t epoll_events)>;
  using Work = std::function<void()>;

  static Result<std::unique_ptr<EventLoop>> create();

  // The descriptor is borrowed and must be removed before it is closed.   Errors: by errno, kExists.
  Status add(int fd, uint32_t epoll_events, FdCallback callback);
  Status modify(int fd, uint32_t epoll_events);
  void remove(int fd);
  // Runs once at or after the deadline. The handle cancels.
  uint64_t add_timer(Deadline when, Work work);
  void cancel_timer(uint64_t handle);
  // Queues work for the loop's thread and wakes it.
  void post(Work work);

  // Handles events until stop().
  void run();
  void stop();
  // In a forked child, outside run(): forgets every watch, timer and queued work of the parent and begins anew in place. Never
  // calls epoll_ctl on the inherited epoll: that would take the parent's watches away.
  Status after_fork();
  // Its own two, for the list of those to keep.
  std::vector<int> descriptors() const { return {epoll_.get(), wake_.get()}; }
  // One round, for loops inside loops (quiesce) and tests: handles what is ready, waits at most until the deadline for the
  // first.
  void run_once(Deadline deadline);

 private:
  EventLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void run_posted();
  void run_timers();
  UniqueFd epoll_, wake_;
  struct Watch {
    FdCallback callback;
  };
  std::map<int, std::shared_ptr<Watch>> watches_;
  struct Timer {
    Deadline when;
    Work work;
  };
  std::map<uint64_t, Timer> timers_;
  uint64_t next_timer_ = 1;
  bool stopping_ = false;
  std::mutex mutex_;  // guards posted_
  std::vector<Work> posted_;
};

}  // namespace ramet::vmm
