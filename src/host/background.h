// host/background.h - slow work that nobody waits for: sealing and deleting overlays, cleaning up after dead machines.
// One named thread, jobs in order of their due time. Owner: Host. Thread: post() from any; jobs run on the worker, one by one.
// Stopping: finishes the job at hand and drops the rest; whatever was dropped is found again by recovery.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace ramet::host {

class Background {
 public:
  using Job = std::function<void()>;
  explicit Background(const char* thread_name);
  ~Background() { stop(); }

  void post(Job job) { post_at(MonotonicClock::now(), std::move(job)); }
  void post_at(Deadline when, Job job);
  // After it no job runs.
  void stop();
  // Until every job due now has run (tests).
  void drain();

 private:
  void loop();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Deadline, Job> jobs_;  // guarded by mutex_
  bool stop_ = false;                  // guarded by mutex_
  bool busy_ = false;                  // guarded by mutex_
  std::thread thread_;
};

// Runs fn(0) .. fn(count-1) on at most `threads` threads of its own and waits for all.
void run_parallel(size_t count, size_t threads, const std::function<void(size_t)>& fn);

}  // namespace ramet::host
