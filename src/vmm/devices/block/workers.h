// vmm/devices/block/workers.h - a small pool of threads for jobs that sleep in system calls. Threads start when there is work
// for them and stay until the pool ends. Jobs begin in the order given. Not here: what a job does.
//
// Fork: between hold() and release() no thread takes a job, so the queue does not change in the middle of a fork(2). A child
// inherits the pool's memory but none of its threads; after_fork() gives it an empty, still held pool that starts threads anew.
// pthread_t and not std::thread, whose destructor would end the child.
// Thread: submit() from any thread. Owner: the block device. Stop path: the destructor runs what was submitted, then joins.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace ramet::vmm {

template <class Job>
class WorkerPool {
 public:
  using Run = std::function<void(Job)>;

  WorkerPool(size_t max_threads, Run run) : max_threads_(max_threads), run_(std::move(run)) {}
  ~WorkerPool() { stop(); }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False: no thread could be started and none exists; the job was not taken.
  [[nodiscard]] bool submit(Job& job) {
    const std::lock_guard lock(mutex_);
    if (idle_ <= jobs_.size() && threads_.size() < max_threads_) start_thread();
    if (threads_.empty()) return false;
    jobs_.push_back(std::move(job));
    wake_.notify_one();
    return true;
  }

  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    wake_.notify_all();
  }

  // Runs what is queued, then ends the threads. submit() may start them again.
  void stop() {
    std::vector<pthread_t> threads;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      held_ = false;
      wake_.notify_all();
      threads.swap(threads_);
    }
    for (const pthread_t t : threads) ::pthread_join(t, nullptr);
    stopping_ = false;
  }

  // In a forked child, single-threaded. Calls drop for the jobs nobody began.
  template <class Drop>
  void after_fork(Drop drop) {
    // Safety: the threads that used these do not exist in this process.
    std::construct_at(&mutex_);
    std::construct_at(&wake_);
    threads_.clear();
    idle_ = 0;
    for (Job& job : jobs_) drop(job);
    jobs_.clear();
  }

 private:
  static constexpr size_t kStackBytes = 256u << 10;

  void start_thread() {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, kStackBytes);
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the vCPU threads and the main one
    pthread_t thread;
    if (::pthread_create(&thread, &attributes, &WorkerPool::main, this) == 0) threads_.push_back(thread);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::pthread_attr_destroy(&attributes);
  }

  static void* main(void* self) {
    static_cast<WorkerPool*>(self)->work();
    return nullptr;
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      idle_++;
      wake_.wait(lock, [this] { return !held_ && (stopping_ || !jobs_.empty()); });
      idle_--;
      if (jobs_.empty()) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      run_(std::move(job));
      lock.lock();
    }
  }

  const size_t max_threads_;
  const Run run_;
  std::mutex mutex_;  // guards all below
  std::condition_variable wake_;
  std::vector<pthread_t> threads_;
  std::deque<Job> jobs_;
  size_t idle_ = 0;
  bool held_ = false;
  bool stopping_ = false;
};

}  // namespace ramet::vmm
