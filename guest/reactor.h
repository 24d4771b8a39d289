// guest/reactor.h - the agent's event loop: descriptors by epoll, timers by CLOCK_MONOTONIC. One thread.
// Not here: what the events mean. Thread: everything happens on the thread that calls run(). Handlers may add and remove
// anything, themselves included. Owned by main(); everything that holds a Watch or Timer dies before it.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace ramet::guest {

class Reactor;

// Interest in one descriptor; ends with the object. Must die before the descriptor is closed.
class Watch {
 public:
  Watch() = default;
  Watch(Watch&& o) noexcept : reactor_(std::exchange(o.reactor_, nullptr)), id_(std::exchange(o.id_, 0)) {}
  Watch& operator=(Watch&& o) noexcept;
  ~Watch() { reset(); }
  // No events at all takes the descriptor out of epoll, so that a hang-up is not reported over and over.
  void set_events(uint32_t events);
  void reset();
  explicit operator bool() const { return reactor_ != nullptr; }

 private:
  friend class Reactor;
  Watch(Reactor* reactor, uint64_t id) : reactor_(reactor), id_(id) {}
  Reactor* reactor_ = nullptr;
  uint64_t id_ = 0;
};

// A one-shot timer; the object's end cancels it.
class Timer {
 public:
  Timer() = default;
  Timer(Timer&& o) noexcept : reactor_(std::exchange(o.reactor_, nullptr)), id_(std::exchange(o.id_, 0)) {}
  Timer& operator=(Timer&& o) noexcept;
  ~Timer() { cancel(); }
  void cancel();

 private:
  friend class Reactor;
  Timer(Reactor* reactor, uint64_t id) : reactor_(reactor), id_(id) {}
  Reactor* reactor_ = nullptr;
  uint64_t id_ = 0;
};

class Reactor {
 public:
  using Handler = std::function<void(uint32_t events)>;

  Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  [[nodiscard]] Watch watch(int fd, uint32_t events, Handler handler);
  [[nodiscard]] Timer after(Nanoseconds delay, std::function<void()> callback);
  // Runs before the loop waits again: for work that would destroy its caller.
  void defer(std::function<void()> callback) { deferred_.push_back(std::move(callback)); }

  void run();
  void stop() { stopping_ = true; }

 private:
  friend class Watch;
  friend class Timer;
  struct Watched {
    int fd;
    uint32_t events;
    std::shared_ptr<Handler> handler;  // shared with the dispatch in progress, which must survive its own removal
  };
  struct Alarm {
    uint64_t id;
    std::function<void()> callback;
  };

  void set_events(uint64_t id, uint32_t events);
  void remove_watch(uint64_t id);
  void remove_timer(uint64_t id);
  int wait_ms() const;
  void fire_timers();
  void run_deferred();

  UniqueFd epoll_;
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, Watched> watched_;
  std::multimap<Deadline, Alarm> timers_;
  std::vector<std::function<void()>> deferred_;
  bool stopping_ = false;
};

}  // namespace ramet::guest
