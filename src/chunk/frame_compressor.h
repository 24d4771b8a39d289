// chunk/frame_compressor.h - frames compressed by a few threads, given back in the order in which they came.
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
    FrameEntry entry;  // without its place
    std::vector<std::byte> stored;
  };
  static constexpr size_t kMaxInWork = 64;

  // 0 threads: add() does the work.
  explicit FrameCompressor(unsigned threads) : max_threads_(threads) {}
  ~FrameCompressor();
  FrameCompressor(const FrameCompressor&) = delete;
  FrameCompressor& operator=(const FrameCompressor&) = delete;

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
  void work();

  const unsigned max_threads_;
  uint64_t added_ = 0;
  FrameEncoder encoder_;                        // the user's
  std::deque<std::unique_ptr<Slot>> in_order_;  // the user's; what a slot holds is a thread's until it is done

  std::mutex mutex_;  // guards all below, and `done` of the slots
  std::condition_variable work_there_, done_there_;
  std::deque<Slot*> waiting_;
  bool stop_ = false;
  std::vector<std::thread> threads_;  // started when first needed, joined in the destructor
};

}  // namespace ramet::chunk
