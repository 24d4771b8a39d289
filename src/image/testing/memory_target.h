// image/testing/memory_target.h - a disk in memory that records what it was asked, and can stall or fail on demand.
// Thread: as BlockTarget.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "image/source.h"

namespace ramet::image::testing {

class MemoryTarget : public BlockTarget {
 public:
  explicit MemoryTarget(uint64_t blocks) : bytes_(blocks * kBlockBytes) {}

  uint64_t size_blocks() const override { return bytes_.size() / kBlockBytes; }
  Result<bool> read(BlockRange range, std::span<const iovec> to, Wait wait) const override {
    if (!range_fits(range, size_blocks())) return fail(ErrorKind::kInvalid, "not on the disk");
    if (wait == Wait::kNever && cold) return false;
    if (wait == Wait::kAllowed) pass(reads_stalled);
    if (failing) return fail(ErrorKind::kIo, "failing (test)");
    const std::lock_guard lock(mutex_);
    const std::byte* from = bytes_.data() + range.first * kBlockBytes;
    for (const iovec& v : to) {
      std::memcpy(v.iov_base, from, v.iov_len);
      from += v.iov_len;
    }
    return true;
  }
  Status write(BlockRange range, std::span<const iovec> from) override {
    if (!range_fits(range, size_blocks())) return fail(ErrorKind::kInvalid, "not on the disk");
    pass(writes_stalled);
    if (failing) return fail(ErrorKind::kNoSpace, "failing (test)");
    const std::lock_guard lock(mutex_);
    std::byte* to = bytes_.data() + range.first * kBlockBytes;
    for (const iovec& v : from) {
      std::memcpy(to, v.iov_base, v.iov_len);
      to += v.iov_len;
    }
    return {};
  }
  Status zero(BlockRange range) override {
    if (!range_fits(range, size_blocks())) return fail(ErrorKind::kInvalid, "not on the disk");
    const std::lock_guard lock(mutex_);
    std::memset(bytes_.data() + range.first * kBlockBytes, 0, range.count * kBlockBytes);
    return {};
  }
  Status flush() override {
    pass(flushes_stalled);
    flushes++;
    if (failing) return fail(ErrorKind::kIo, "failing (test)");
    return {};
  }
  void hold() override { holds++; }
  void release() override { holds--; }
  void after_fork() override {
    std::construct_at(&mutex_);
    std::construct_at(&changed_);
  }

  // Changes a switch and lets those who wait for it look again.
  void set(bool& which, bool value) {
    const std::lock_guard lock(mutex_);
    which = value;
    changed_.notify_all();
  }

  bool cold = false;  // nothing can be read without waiting
  bool reads_stalled = false, writes_stalled = false, flushes_stalled = false;
  std::atomic<bool> failing = false;
  std::atomic<int> flushes = 0;
  std::atomic<int> holds = 0;

 private:
  void pass(const bool& stalled) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !stalled; });
  }
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::byte> bytes_;
};

}  // namespace ramet::image::testing
