// image/testing/crash_file.h - a file in memory whose host can lose power: crash() forgets what was not synced. Each unsynced
// sector of 512 bytes (or page, for data files) then has its old or its new content, by a coin. Also fails on demand.
// Thread: any; a power failure only while nobody else uses it. Not for production code.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "image/file.h"
#include "image/iovecs.h"

namespace ramet::image::testing {

// The file itself; handles (CrashFile) share it. Sparse.
class CrashInode {
 public:
  explicit CrashInode(uint64_t atom_bytes = 512) : atom_bytes_(atom_bytes) {}

  uint64_t size() const {
    const std::lock_guard lock(mutex_);
    return size_;
  }
  void write(uint64_t offset, std::span<const std::byte> data) {
    const std::lock_guard lock(mutex_);
    size_ = std::max(size_, offset + data.size());
    for_atoms(offset, data.size(), [&](uint64_t atom, uint64_t within, uint64_t n, uint64_t done) {
      std::memcpy(dirty(atom).data() + within, data.data() + done, n);
    });
  }
  void punch(uint64_t offset, uint64_t length) {
    const std::lock_guard lock(mutex_);
    if (offset >= size_) return;
    const uint64_t end = offset + std::min(length, size_ - offset);
    // Only what exists: the range may be astronomical.
    std::vector<uint64_t> there;
    for (auto it = now_.lower_bound(offset / atom_bytes_); it != now_.end() && it->first * atom_bytes_ < end; ++it)
      there.push_back(it->first);
    for (const uint64_t atom : there) {
      const uint64_t from = std::max(offset, atom * atom_bytes_), to = std::min(end, (atom + 1) * atom_bytes_);
      std::memset(dirty(atom).data() + (from - atom * atom_bytes_), 0, to - from);
    }
  }
  void resize(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes < size_) punch(bytes, size_ - bytes);
    size_ = bytes;
  }
  void read(uint64_t offset, std::span<std::byte> out) const {
    const std::lock_guard lock(mutex_);
    std::fill(out.begin(), out.end(), std::byte{0});
    if (offset >= size_) return;
    for_atoms(offset, std::min<uint64_t>(out.size(), size_ - offset),
              [&](uint64_t atom, uint64_t within, uint64_t n, uint64_t done) {
                const auto found = now_.find(atom);
                if (found != now_.end()) std::memcpy(out.data() + done, found->second.data() + within, n);
              });
  }
  std::byte at(uint64_t offset) const {
    std::byte b{};
    read(offset, {&b, 1});
    return b;
  }
  void sync() {
    const std::lock_guard lock(mutex_);
    for (const uint64_t atom : dirty_) durable_[atom] = now_[atom];
    dirty_.clear();
    durable_size_ = size_;
    syncs++;
  }
  template <class Rng>
  void crash(Rng& rng) {
    const std::lock_guard lock(mutex_);
    std::bernoulli_distribution coin(0.5);
    for (const uint64_t atom : dirty_) {
      if (coin(rng)) durable_[atom] = now_[atom];  // written back by chance
      now_[atom] = durable_.contains(atom) ? durable_[atom] : std::vector<std::byte>(atom_bytes_);
    }
    dirty_.clear();
    if (coin(rng)) durable_size_ = size_;
    size_ = durable_size_;
    std::erase_if(now_, [&](const auto& entry) { return entry.first * atom_bytes_ >= size_; });
    std::erase_if(durable_, [&](const auto& entry) { return entry.first * atom_bytes_ >= size_; });
  }

  std::atomic<unsigned> syncs = 0;
  std::atomic<int> writes_before_failure = -1;  // >= 0: counts down, then every write fails with kNoSpace after half of it
  std::atomic<bool> fail_sync = false;

 private:
  template <class F>
  void for_atoms(uint64_t offset, uint64_t length, F f) const {
    for (uint64_t done = 0; done < length;) {
      const uint64_t within = (offset + done) % atom_bytes_;
      const uint64_t n = std::min(atom_bytes_ - within, length - done);
      f((offset + done) / atom_bytes_, within, n, done);
      done += n;
    }
  }
  std::vector<std::byte>& dirty(uint64_t atom) {
    dirty_.insert(atom);
    std::vector<std::byte>& bytes = now_[atom];
    bytes.resize(atom_bytes_);
    return bytes;
  }
  const uint64_t atom_bytes_;
  mutable std::recursive_mutex mutex_;  // guards all below
  uint64_t size_ = 0, durable_size_ = 0;
  std::map<uint64_t, std::vector<std::byte>> now_, durable_;
  std::set<uint64_t> dirty_;
};

class CrashFile final : public File {
 public:
  CrashFile(std::shared_ptr<CrashInode> inode, bool writer) : inode_(std::move(inode)), writer_(writer) {}

  Result<bool> read(uint64_t offset, std::span<const iovec> to, Wait wait) const override {
    if (wait == Wait::kNever && would_block) return false;
    for (const iovec& v : to) {
      inode_->read(offset, {static_cast<std::byte*>(v.iov_base), v.iov_len});
      offset += v.iov_len;
    }
    return true;
  }
  Status write(uint64_t offset, std::span<const iovec> from) override {
    if (!writer_) return fail(ErrorKind::kPermission, "no writer");
    for (const iovec& v : from) {
      std::span<const std::byte> data(static_cast<const std::byte*>(v.iov_base), v.iov_len);
      if (inode_->writes_before_failure == 0) {
        inode_->write(offset, data.first(data.size() / 2));
        return fail(ErrorKind::kNoSpace, "no space (test)");
      }
      if (inode_->writes_before_failure > 0) inode_->writes_before_failure--;
      inode_->write(offset, data);
      offset += v.iov_len;
    }
    return {};
  }
  Status sync() const override {
    if (inode_->fail_sync) return fail(ErrorKind::kIo, "sync failed (test)");
    inode_->sync();
    return {};
  }
  Status punch(uint64_t offset, uint64_t length) override {
    if (!writer_) return fail(ErrorKind::kPermission, "no writer");
    inode_->punch(offset, length);
    return {};
  }
  void start_writeback() const override {}
  Result<uint64_t> size() const override { return inode_->size(); }
  Status resize(uint64_t bytes) override {
    if (!writer_) return fail(ErrorKind::kPermission, "no writer");
    inode_->resize(bytes);
    return {};
  }
  bool has_writer() const override { return writer_; }
  void drop_writer() override { writer_ = false; }
  void append_descriptors(std::vector<int>&) const override {}

  bool would_block = false;

 private:
  std::shared_ptr<CrashInode> inode_;
  bool writer_;
};

// Both files of one overlay, which outlive the stacks that use them.
struct CrashOverlay {
  std::string id;
  std::shared_ptr<CrashInode> data = std::make_shared<CrashInode>(4096);
  std::shared_ptr<CrashInode> log = std::make_shared<CrashInode>(512);
};

}  // namespace ramet::image::testing
