// commit/in_order.h - pieces of work that several threads do side by side, taken back in the order in which they were given.
// Whoever waits for one does another one meanwhile, so without threads it is the caller's work. How many are under way at a
// time is the caller's to say: what is given waits. Not here: what the work is; it says itself how it went.
// Thread: one gives and takes. Owns its threads: they are started when there is work, and joined in the destructor, which drops
// what nobody has begun.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace ramet::commit {

// More than a few would wait for the one that takes.
inline unsigned threads_beside_this_one() { return std::clamp(std::thread::hardware_concurrency(), 1u, 4u) - 1; }

template <class Job>
class InOrder {
 public:
  using Work = std::function<void(Job&)>;
  InOrder(unsigned max_threads, Work work) : max_threads_(max_threads), work_(std::move(work)) {}
  ~InOrder() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_there_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;

  size_t size() const { return in_order_.size(); }
  void give(std::unique_ptr<Job> job) {
    Slot* const slot = in_order_.emplace_back(std::make_unique<Slot>(std::move(job))).get();
    if (threads_.size() < max_threads_ && in_order_.size() > 1) threads_.emplace_back([this] { serve(); });
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(slot);
    }
    work_there_.notify_one();
  }
  // The oldest one, done.   Requires: size() > 0.
  std::unique_ptr<Job> take() {
    Slot& oldest = *in_order_.front();
    {
      std::unique_lock lock(mutex_);
      while (!oldest.done && !waiting_.empty()) do_next(lock);
      done_there_.wait(lock, [&] { return oldest.done; });
    }
    std::unique_ptr<Job> job = std::move(oldest.job);
    in_order_.pop_front();
    return job;
  }

 private:
  struct Slot {
    explicit Slot(std::unique_ptr<Job> j) : job(std::move(j)) {}
    std::unique_ptr<Job> job;
    bool done = false;
  };
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_there_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
      if (stop_) return;
      do_next(lock);
      done_there_.notify_one();
    }
  }
  void do_next(std::unique_lock<std::mutex>& lock) {
    Slot& slot = *waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    work_(*slot.job);
    lock.lock();
    slot.done = true;
  }

  const unsigned max_threads_;
  const Work work_;
  std::deque<std::unique_ptr<Slot>> in_order_;  // the caller's
  std::vector<std::thread> threads_;            // likewise
  std::mutex mutex_;                            // guards what follows, and the slots' `done`
  std::condition_variable work_there_, done_there_;
  std::deque<Slot*> waiting_;
  bool stop_ = false;
};

}  // namespace ramet::commit
