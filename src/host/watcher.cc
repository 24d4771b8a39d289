#include "host/watcher.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ramet::host {

Result<std::unique_ptr<Watcher>> Watcher::start() {
  std::unique_ptr<Watcher> w(new Watcher);
  w->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!w->epoll_) return fail_errno("epoll_create1");
  w->stop_event_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!w->stop_event_) return fail_errno("eventfd");
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.u64 = 0;
  if (::epoll_ctl(w->epoll_.get(), EPOLL_CTL_ADD, w->stop_event_.get(), &e) < 0) return fail_errno("epoll_ctl");
  w->thread_ = std::thread([raw = w.get()] { raw->loop(); });
  return w;
}

Watcher::~Watcher() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(stop_event_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

Result<uint64_t> Watcher::watch(int fd, Callback callback) {
  const auto entry = std::make_shared<Entry>();
  entry->fd = fd;
  entry->callback = std::move(callback);
  uint64_t token;
  {
    const std::lock_guard lock(mutex_);
    token = next_token_++;
    entries_.emplace(token, entry);
  }
  epoll_event e{};
  e.events = EPOLLIN | EPOLLRDHUP;
  e.data.u64 = token;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &e) < 0) {
    const int err = errno;
    const std::lock_guard lock(mutex_);
    entries_.erase(token);
    return fail_errno("epoll_ctl", err);
  }
  return token;
}

void Watcher::mute(uint64_t token) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(token);
    if (it == entries_.end()) return;
    entry = it->second;
  }
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, entry->fd, nullptr);
  entry->dead = true;  // only the watcher's thread, which is here, looks at it
}

void Watcher::unwatch(uint64_t token) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(token);
    if (it == entries_.end()) return;
    entry = std::move(it->second);
    entries_.erase(it);
  }
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, entry->fd, nullptr);
  if (std::this_thread::get_id() == thread_.get_id()) {
    entry->dead = true;  // this thread is the only one that runs callbacks
    return;
  }
  const std::lock_guard lock(entry->running);
  entry->dead = true;
}

void Watcher::loop() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    if (n < 0 && errno != EINTR) return;
    for (int i = 0; i < n; i++) {
      const uint64_t token = events[i].data.u64;  // a copy: epoll_event is packed, no reference may point into it
      if (token == 0) return;
      std::shared_ptr<Entry> entry;
      {
        const std::lock_guard lock(mutex_);
        const auto it = entries_.find(token);
        if (it == entries_.end()) continue;
        entry = it->second;
      }
      const std::lock_guard running(entry->running);
      if (!entry->dead) entry->callback();
    }
  }
}

}  // namespace ramet::host
