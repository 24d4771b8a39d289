#include "vmm/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

namespace ramet::vmm {

namespace {

struct Descriptors {
  UniqueFd epoll, wake;
};
Result<Descriptors> open_descriptors() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno("create epoll");
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno("create eventfd");
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.fd = wake.get();
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &e) < 0) return fail_errno("watch eventfd");
  return Descriptors{std::move(epoll), std::move(wake)};
}

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  TRY_ASSIGN(Descriptors fds, open_descriptors());
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(fds.epoll), std::move(fds.wake)));
}

Status EventLoop::after_fork() {
  watches_.clear();
  timers_.clear();
  posted_.clear();
  stopping_ = false;
  epoll_.reset();
  wake_.reset();
  TRY_ASSIGN(Descriptors fds, open_descriptors());
  epoll_ = std::move(fds.epoll);
  wake_ = std::move(fds.wake);
  return {};
}

Status EventLoop::add(int fd, uint32_t epoll_events, FdCallback callback) {
  epoll_event e{};
  e.events = epoll_events;
  e.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &e) < 0) return fail_errno("watch descriptor");
  watches_[fd] = std::make_shared<Watch>(Watch{std::move(callback)});
  return {};
}

Status EventLoop::modify(int fd, uint32_t epoll_events) {
  epoll_event e{};
  e.events = epoll_events;
  e.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &e) < 0) return fail_errno("change watch of descriptor");
  return {};
}

void EventLoop::remove(int fd) {
  if (watches_.erase(fd)) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

uint64_t EventLoop::add_timer(Deadline when, Work work) {
  const uint64_t handle = next_timer_++;
  timers_[handle] = {when, std::move(work)};
  return handle;
}

void EventLoop::cancel_timer(uint64_t handle) { timers_.erase(handle); }

void EventLoop::post(Work work) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
}

void EventLoop::run_posted() {
  std::vector<Work> work;
  {
    const std::lock_guard lock(mutex_);
    work.swap(posted_);
  }
  for (Work& w : work) w();
}

void EventLoop::run_timers() {
  const Deadline now = MonotonicClock::now();
  std::vector<uint64_t> due;
  for (const auto& [handle, timer] : timers_)
    if (timer.when <= now) due.push_back(handle);
  for (const uint64_t handle : due) {
    const auto it = timers_.find(handle);
    if (it == timers_.end()) continue;  // cancelled by an earlier one
    const Work work = std::move(it->second.work);
    timers_.erase(it);
    work();
  }
}

void EventLoop::run_once(Deadline deadline) {
  for (const auto& [handle, timer] : timers_) deadline = std::min(deadline, timer.when);
  epoll_event events[64];
  const int64_t wait_ms = std::min<int64_t>(time_left(deadline).count(), 60'000);
  const int n = ::epoll_wait(epoll_.get(), events, 64, static_cast<int>(wait_ms));
  for (int i = 0; i < n; i++) {
    const int fd = events[i].data.fd;
    if (fd == wake_.get()) {
      uint64_t count;
      [[maybe_unused]] const ssize_t r = ::read(wake_.get(), &count, sizeof count);
      continue;
    }
    const auto it = watches_.find(fd);
    if (it == watches_.end()) continue;               // removed by an earlier callback of this round
    const std::shared_ptr<Watch> watch = it->second;  // keeps the callback alive while it removes itself
    watch->callback(events[i].events);
  }
  run_posted();
  run_timers();
}

void EventLoop::run() {
  stopping_ = false;
  while (!stopping_) run_once(deadline_after(std::chrono::seconds(60)));
}

void EventLoop::stop() { stopping_ = true; }

}  // namespace ramet::vmm
