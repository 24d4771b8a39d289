// chunk/frame_compressor.h - frames compressed by a few threads, given back in the order in which they came.
// Whoever has to wait for them compresses too: two threads that wait for each other's frames switch for each of them. Memory of
// frames is used again, since fresh memory costs a fault for each page of it: without that a tenth of a put was faults.
// Not here: which blocks are in a frame, where it goes. Memory: kMaxInWork frames, plain and stored, 16 MiB.
// A resource; its threads end with it. Thread: its user is one.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "chunk/frame.h"

namespace ramet::chunk {

class FrameCompressor {
 public:
  struct Frame {
    FrameId id = 0;
    std::vector<std::byte> plain;
    std::vector<Digest> blocks;  // one for each
    // Made by the compressor.
    FrameEntry entry;               // without its place
    std::vector<std::byte> stored;  // kept for its capacity
    std::span<const std::byte> stored_bytes() const { return std::span(stored).first(entry.stored_bytes); }
  };
  static constexpr size_t kMaxInWork = 64;

  // 0 threads: add() does the work.
  explicit FrameCompressor(unsigned threads) : max_threads_(threads) {}
  ~FrameCompressor();
  FrameCompressor(const FrameCompressor&) = delete;
  FrameCompressor& operator=(const FrameCompressor&) = delete;

  // One without blocks, but with room for them.
  Frame empty_frame();
  // What take() gave, once it is not needed any more.
  void give_back(Frame frame);

  // Requires: not full().
  void add(Frame frame);
  bool full() const { return in_order_.size() >= kMaxInWork; }
  enum class Wait { kNo, kYes };
  // The oldest; nullopt: there is none, or (kNo) it is not done yet.
  std::optional<Frame> take(Wait wait);

 private:
  struct Slot {
    Frame frame;
    bool done = false;
  };
  // Few frames are not worth a thread.
  static constexpr uint64_t kFramesWithoutThreads = 8;
  static void compress(Frame& frame, FrameEncoder& encoder);
  void work();
  // Compresses the one that waits longest.   Requires: one does; the lock is held, and let go of meanwhile.
  void compress_next(FrameEncoder& encoder, std::unique_lock<std::mutex>& lock);

  const unsigned max_threads_;
  // The user's:
  uint64_t added_ = 0;
  FrameEncoder encoder_;
  std::deque<std::unique_ptr<Slot>> in_order_;  // what a slot holds is a thread's until it is done
  std::vector<Frame> spare_;

  std::mutex mutex_;  // guards all below, and `done` of the slots
  std::condition_variable work_there_, done_there_;
  std::deque<Slot*> waiting_;
  bool stop_ = false;
  std::vector<std::thread> threads_;  // started when first needed, joined in the destructor
};

}  // namespace ramet::chunk
