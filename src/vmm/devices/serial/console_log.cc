#include "vmm/devices/serial/console_log.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/file.h"

namespace ramet::vmm {
namespace {
constexpr size_t kPieceBytes = 512;
constexpr size_t kCopyBytes = 64 << 10;
}  // namespace

ConsoleLog::ConsoleLog(UniqueFd file, uint64_t limit_bytes) : limit_bytes_(limit_bytes) { replace(std::move(file)); }

void ConsoleLog::replace(UniqueFd file) {
  const std::lock_guard lock(mutex_);
  file_ = std::move(file);
  pending_.clear();
  size_ = 0;
  if (!file_) return;
  const Result<uint64_t> size = file_size(file_.get());
  if (size) size_ = *size;
}

void ConsoleLog::append(char c) {
  const std::lock_guard lock(mutex_);
  total_++;
  pending_.push_back(c);
  if (c == '\n' || pending_.size() >= kPieceBytes) write_pending();
}

void ConsoleLog::flush() {
  const std::lock_guard lock(mutex_);
  write_pending();
}

uint64_t ConsoleLog::total_bytes() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

void ConsoleLog::write_pending() {
  if (file_ && !pending_.empty() && pwrite_all(file_.get(), as_bytes(pending_), size_)) size_ += pending_.size();
  pending_.clear();
  if (size_ >= 2 * limit_bytes_) keep_the_end();
}

void ConsoleLog::keep_the_end() {
  const uint64_t from = size_ - limit_bytes_;
  std::vector<std::byte> buffer(kCopyBytes);
  for (uint64_t at = 0; at < limit_bytes_; at += buffer.size()) {
    const std::span<std::byte> part(buffer.data(), std::min<uint64_t>(buffer.size(), limit_bytes_ - at));
    if (!pread_exact(file_.get(), part, from + at) || !pwrite_all(file_.get(), part, at)) break;
  }
  if (::ftruncate(file_.get(), static_cast<off_t>(limit_bytes_)) == 0) size_ = limit_bytes_;
}

}  // namespace ramet::vmm
