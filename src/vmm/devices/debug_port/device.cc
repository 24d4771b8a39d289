#include "vmm/devices/debug_port/device.h"

#include <cstring>
#include <utility>

namespace ramet::vmm {

Status DebugPort::push(std::span<const uint32_t> words) {
  {
    const std::lock_guard lock(mutex_);
    if (words_.size() + words.size() > kMaxWaitingWords)
      return fail(ErrorKind::kNoSpace, std::to_string(words_.size() + words.size()) +
                                           " words for the debug port, the limit is " + std::to_string(kMaxWaitingWords));
    words_.insert(words_.end(), words.begin(), words.end());
  }
  changed_.notify_all();
  return {};
}

void DebugPort::interrupt() {
  {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
  }
  changed_.notify_all();
}

void DebugPort::resume() {
  const std::lock_guard lock(mutex_);
  if (interrupted_ && !zero_read_) zero_owed_ = true;  // not on the first start: nobody was parked
  interrupted_ = false;
}

void DebugPort::after_fork() {
  zero_owed_ = !zero_read_;
  interrupted_ = false;
}

uint32_t DebugPort::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !words_.empty() || interrupted_ || zero_owed_; });
  zero_read_ = interrupted_ || zero_owed_;
  zero_owed_ = false;
  if (zero_read_) return 0;
  const uint32_t word = words_.front();
  words_.pop_front();
  return word;
}

void DebugPort::bus_read(uint64_t offset, std::span<std::byte> data) {
  uint32_t word = 0xffffffff;
  if (offset == 0 && data.size() == sizeof word) word = take();
  std::memset(data.data(), 0xff, data.size());
  if (data.size() == sizeof word) std::memcpy(data.data(), &word, sizeof word);
}

void DebugPort::bus_write(uint64_t offset, std::span<const std::byte> data) {
  uint32_t word = 0;
  if (offset != 0 || data.size() != sizeof word) return;
  std::memcpy(&word, data.data(), sizeof word);
  {
    const std::lock_guard lock(mutex_);
    zero_read_ = false;
  }
  report_(word);
}

}  // namespace ramet::vmm
