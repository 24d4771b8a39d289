#include "reactor.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>

namespace ramet::guest {

Watch& Watch::operator=(Watch&& o) noexcept {
  if (this != &o) {
    reset();
    reactor_ = std::exchange(o.reactor_, nullptr);
    id_ = std::exchange(o.id_, 0);
  }
  return *this;
}

void Watch::set_events(uint32_t events) {
  if (reactor_) reactor_->set_events(id_, events);
}

void Watch::reset() {
  if (reactor_) std::exchange(reactor_, nullptr)->remove_watch(id_);
}

Timer& Timer::operator=(Timer&& o) noexcept {
  if (this != &o) {
    cancel();
    reactor_ = std::exchange(o.reactor_, nullptr);
    id_ = std::exchange(o.id_, 0);
  }
  return *this;
}

void Timer::cancel() {
  if (reactor_) std::exchange(reactor_, nullptr)->remove_timer(id_);
}

Reactor::Reactor() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) std::abort();  // only at start, before anything depends on us
}

Watch Reactor::watch(int fd, uint32_t events, Handler handler) {
  const uint64_t id = next_id_++;
  watched_.emplace(id, Watched{fd, 0, std::make_shared<Handler>(std::move(handler))});
  set_events(id, events);
  return Watch(this, id);
}

void Reactor::set_events(uint64_t id, uint32_t events) {
  const auto it = watched_.find(id);
  if (it == watched_.end() || it->second.events == events) return;
  Watched& w = it->second;
  const int op = w.events == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  ::epoll_ctl(epoll_.get(), op, w.fd, &event);
  w.events = events;
}

void Reactor::remove_watch(uint64_t id) {
  set_events(id, 0);
  watched_.erase(id);
}

Timer Reactor::after(Nanoseconds delay, std::function<void()> callback) {
  const uint64_t id = next_id_++;
  timers_.emplace(MonotonicClock::now() + delay, Alarm{id, std::move(callback)});
  return Timer(this, id);
}

void Reactor::remove_timer(uint64_t id) {
  const auto it = std::find_if(timers_.begin(), timers_.end(), [id](const auto& t) { return t.second.id == id; });
  if (it != timers_.end()) timers_.erase(it);
}

int Reactor::wait_ms() const {
  if (!deferred_.empty()) return 0;
  if (timers_.empty()) return -1;
  return static_cast<int>(std::min<int64_t>(time_left(timers_.begin()->first).count(), INT_MAX));
}

void Reactor::fire_timers() {
  const Deadline now = MonotonicClock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const std::function<void()> callback = std::move(timers_.begin()->second.callback);
    timers_.erase(timers_.begin());
    callback();
  }
}

void Reactor::run_deferred() {
  while (!deferred_.empty()) {
    std::vector<std::function<void()>> batch;
    batch.swap(deferred_);
    for (const std::function<void()>& callback : batch) callback();
  }
}

void Reactor::run() {
  stopping_ = false;
  while (!stopping_) {
    epoll_event events[64];
    const int n = ::epoll_wait(epoll_.get(), events, std::size(events), wait_ms());
    for (int i = 0; i < n; i++) {
      const auto it = watched_.find(events[i].data.u64);
      if (it == watched_.end()) continue;  // removed by a handler of this round
      const std::shared_ptr<Handler> handler = it->second.handler;
      (*handler)(events[i].events);
    }
    fire_timers();
    run_deferred();
  }
}

}  // namespace ramet::guest
