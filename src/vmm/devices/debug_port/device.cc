#include "vmm/devices/debug_port/device.h"

#include <cstring>
#include <utility>

namespace ramet::vmm {

Status DebugPort::push(std::span<const uint32_t> words) {
  {
    const std::lock_guard lock(inbox_->mutex);
    if (inbox_->words.size() + words.size() > kMaxWaitingWords)
      return fail(ErrorKind::kNoSpace, std::to_string(inbox_->words.size() + words.size()) +
                                           " words for the debug port, the limit is " + std::to_string(kMaxWaitingWords));
    inbox_->words.insert(inbox_->words.end(), words.begin(), words.end());
  }
  inbox_->changed.notify_all();
  return {};
}

void DebugPort::interrupt() {
  {
    const std::lock_guard lock(inbox_->mutex);
    inbox_->interrupted = true;
  }
  inbox_->changed.notify_all();
}

void DebugPort::resume() {
  const std::lock_guard lock(inbox_->mutex);
  if (inbox_->interrupted && !inbox_->zero_read) inbox_->zero_owed = true;  // not on the first start: nobody was parked
  inbox_->interrupted = false;
}

void DebugPort::after_fork() {
  std::unique_ptr<Inbox> fresh = std::make_unique<Inbox>();
  fresh->words = std::move(inbox_->words);
  fresh->zero_read = inbox_->zero_read;
  fresh->zero_owed = !inbox_->zero_read;
  // A destructor would wait for threads that do not exist here: the old one is given up.
  static_cast<void>(inbox_.release());
  inbox_ = std::move(fresh);
}

uint32_t DebugPort::take() {
  std::unique_lock lock(inbox_->mutex);
  inbox_->changed.wait(lock, [this] { return !inbox_->words.empty() || inbox_->interrupted || inbox_->zero_owed; });
  inbox_->zero_read = inbox_->interrupted || inbox_->zero_owed;
  inbox_->zero_owed = false;
  if (inbox_->zero_read) return 0;
  const uint32_t word = inbox_->words.front();
  inbox_->words.pop_front();
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
    const std::lock_guard lock(inbox_->mutex);
    inbox_->zero_read = false;
  }
  report_(word);
}

}  // namespace ramet::vmm
