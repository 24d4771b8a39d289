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

FrameCompressor::Frame FrameCompressor::empty_frame() {
  Frame frame;
  if (!spare_.empty()) {
    frame = std::move(spare_.back());
    spare_.pop_back();
  }
  frame.plain.reserve(kMaxFrameBytes);
  frame.blocks.reserve(kFrameBlocks);
  return frame;
}

void FrameCompressor::give_back(Frame frame) {
  frame.plain.clear();
  frame.blocks.clear();
  spare_.push_back(std::move(frame));
}

void FrameCompressor::compress(Frame& frame, FrameEncoder& encoder) {
  if (frame.stored.size() < frame.plain.size()) frame.stored.resize(frame.plain.size());
  frame.entry = encoder.encode(frame.plain, frame.blocks, frame.stored);
}

void FrameCompressor::add(Frame frame) {
  Slot& slot = *in_order_.emplace_back(std::make_unique<Slot>());
  slot.frame = std::move(frame);
  if (max_threads_ == 0 || ++added_ <= kFramesWithoutThreads) {
    compress(slot.frame, encoder_);
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
    while (!oldest.done && !waiting_.empty()) compress_next(encoder_, lock);
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
    compress_next(encoder, lock);
    done_there_.notify_one();
  }
}

void FrameCompressor::compress_next(FrameEncoder& encoder, std::unique_lock<std::mutex>& lock) {
  Slot& slot = *waiting_.front();
  waiting_.pop_front();
  lock.unlock();
  compress(slot.frame, encoder);
  lock.lock();
  slot.done = true;
}

}  // namespace ramet::chunk
