// image/held_chunks.h - what a reader of a chunked disk knows of its chunks: the descriptors it holds, at most kMaxHeldChunks
// of them, and which chunks are all zero. Not here: where descriptors come from (chunk_client.h), reading them.
//
// Problem: every read of a warm disk passes here, from many threads, and must cost next to nothing beside its pread(2); yet a
// descriptor may be taken away at any time, and its number then belongs to another file. Idea: a reader pins the slot (one
// atomic addition), then looks whether the slot is still that chunk's; a slot is emptied only while nobody has it pinned.
// Rejected: a shared lock held over the read (who takes a chunk away would wait for every reader, and may starve), a
// shared_ptr copied under a short one (twice the atomic operations).
// The least recently used one makes room; "recently" is as fine as the arrivals of chunks are.
//
// Thread: all concurrently. Owner: the source.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "image/chunk_protocol.h"

namespace ramet::image {

class HeldChunks {
  struct Slot;

 public:
  explicit HeldChunks(uint64_t disk_blocks);

  // A descriptor that stays open as long as this lives: the length of one read.
  class Pin {
   public:
    Pin(Pin&& o) noexcept : slot_(std::exchange(o.slot_, nullptr)) {}
    Pin& operator=(Pin&&) = delete;
    ~Pin() {
      if (slot_) slot_->unpin();
    }
    explicit operator bool() const { return slot_ != nullptr; }
    int fd() const { return slot_->fd.get(); }

   private:
    friend class HeldChunks;
    explicit Pin(Slot* slot) : slot_(slot) {}
    Slot* slot_;
  };
  // Empty: the chunk is not held.   Requires (of all with a chunk): it is on the disk.
  Pin find(uint64_t chunk) const;
  bool is_zero(uint64_t chunk) const { return index_[chunk].load(std::memory_order_relaxed) == kZero; }
  uint64_t chunks() const { return chunks_; }

  // False: held already, or no slot is free; the descriptor is closed then.
  bool add(uint64_t chunk, UniqueFd fd);
  // Closes it once the reads of it in progress are done. False: it was not held.
  bool remove(uint64_t chunk);
  // Closes the least recently used ones until at most that many are held, or all others are being read. Which they were.
  std::vector<uint64_t> trim(size_t most);
  // Those chunks that lie in the range whole.
  void mark_zero(BlockRange range);

  std::vector<uint64_t> held() const;  // ascending
  void append_descriptors(std::vector<int>& out) const;

 private:
  // An empty slot has kEmpty; kWanted keeps new readers away until the last one has left.
  static constexpr uint32_t kEmpty = 1u << 31, kWanted = 1u << 30, kReaders = kWanted - 1;
  static constexpr uint16_t kUnknown = 0, kZero = UINT16_MAX;  // of the index; else the slot's number + 1

  struct alignas(64) Slot {
    std::atomic<uint32_t> state{kEmpty};  // flags and the number of readers
    std::atomic<uint64_t> used{0};        // arrivals_ at the last read
    uint64_t chunk = 0;                   // these two change only while the slot is empty
    UniqueFd fd;
    bool pin() {
      if (!(state.fetch_add(1, std::memory_order_acquire) & (kEmpty | kWanted))) return true;
      unpin();
      return false;
    }
    void unpin() {
      if (state.fetch_sub(1, std::memory_order_release) == (kWanted | 1)) state.notify_all();
    }
  };
  bool is_held(uint64_t chunk) const;
  Slot* empty_slot() const;
  Slot* least_recently_used() const;
  UniqueFd take_out(Slot& slot);

  const uint64_t blocks_, chunks_;
  // Readers go by these two without the mutex; changed with it.
  std::unique_ptr<std::atomic<uint16_t>[]> index_;  // by chunk
  mutable std::array<Slot, kMaxHeldChunks> slots_;
  std::atomic<uint64_t> arrivals_{0};

  mutable std::mutex mutex_;  // one change at a time
  size_t count_ = 0;
};

}  // namespace ramet::image
