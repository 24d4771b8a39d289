#include "host/background.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace ramet::host {

Background::Background(const char* thread_name) {
  thread_ = std::thread([this] { loop(); });
  ::pthread_setname_np(thread_.native_handle(), thread_name);
}

void Background::post_at(Deadline when, Job job) {
  const std::lock_guard lock(mutex_);
  if (stop_) return;
  jobs_.emplace(when, std::move(job));
  changed_.notify_all();
}

void Background::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    jobs_.clear();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Background::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || (!busy_ && (jobs_.empty() || jobs_.begin()->first > MonotonicClock::now())); });
}

void Background::loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (jobs_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Deadline due = jobs_.begin()->first;
    if (due > MonotonicClock::now()) {
      changed_.wait_until(lock, due);
      continue;
    }
    Job job = std::move(jobs_.begin()->second);
    jobs_.erase(jobs_.begin());
    busy_ = true;
    lock.unlock();
    job();
    job = nullptr;  // what it holds goes before the next one is looked for
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void run_parallel(size_t count, size_t threads, const std::function<void(size_t)>& fn) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) fn(i);
  };
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < std::min(count, threads); i++) helpers.emplace_back(work);
  work();
  for (std::thread& t : helpers) t.join();
}

}  // namespace ramet::host
