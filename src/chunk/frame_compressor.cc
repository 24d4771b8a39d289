#include "chunk/frame_compressor.h"

namespace ramet::chunk {

FrameCompressor::~FrameCompressor() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    waiting_.clear();
  }
  work_there_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void FrameCompressor::add(Frame frame) {
  Slot& slot = *in_order_.emplace_back(std::make_unique<Slot>());
  slot.frame = std::move(frame);
  if (max_threads_ == 0 || ++added_ <= kFramesWithoutThreads) {
    slot.frame.entry = encoder_.encode(slot.frame.plain, slot.frame.blocks, slot.frame.stored);
    slot.done = true;  // no thread has heard of it
    return;
  }
  if (threads_.size() < max_threads_) threads_.emplace_back([this] { work(); });
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(&slot);
  }
  work_there_.notify_one();
}

std::optional<FrameCompressor::Frame> FrameCompressor::take(Wait wait) {
  if (in_order_.empty()) return std::nullopt;
  Slot& oldest = *in_order_.front();
  {
    std::unique_lock lock(mutex_);
    if (!oldest.done && wait == Wait::kNo) return std::nullopt;
    done_there_.wait(lock, [&] { return oldest.done; });
  }
  Frame frame = std::move(oldest.frame);
  in_order_.pop_front();
  return frame;
}

void FrameCompressor::work() {
  FrameEncoder encoder;
  std::unique_lock lock(mutex_);
  for (;;) {
    work_there_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    Slot& slot = *waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    slot.frame.entry = encoder.encode(slot.frame.plain, slot.frame.blocks, slot.frame.stored);
    lock.lock();
    slot.done = true;
    done_there_.notify_one();
  }
}

}  // namespace ramet::chunk
