// abi/frame.h - where the guest agent listens and how messages are cut out of a byte stream.
// A frame is a u32 little-endian length and that many bytes of one protobuf message (abi/agent.proto).
// Not here: sockets, the meaning of messages. Thread: values, no shared state. Errors: a length over the limit is the only one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ramet::abi {

inline constexpr uint32_t kGuestCid = 3;
inline constexpr uint32_t kAgentPort = 1024;

inline constexpr size_t kFrameHeaderBytes = 4;
inline constexpr uint32_t kMaxFrameBytes = 1u << 20;  // of the message, without the header
inline constexpr size_t kChunkBytes = 64u << 10;      // most bytes of file, stdin or output in one frame

inline constexpr std::string_view kReadyLine = "ramet-guest: ready";  // on the console once the agent listens

inline void put_frame_header(char* out, uint32_t length) {
  for (int i = 0; i < 4; i++) out[i] = static_cast<char>(length >> (8 * i));
}

inline uint32_t get_frame_header(const char* in) {
  uint32_t length = 0;
  for (int i = 0; i < 4; i++) length |= static_cast<uint32_t>(static_cast<unsigned char>(in[i])) << (8 * i);
  return length;
}

// Appends `message` as one frame. False, and `out` unchanged, when it is longer than a frame may be.
template <typename Message>
[[nodiscard]] bool append_frame(const Message& message, std::string& out) {
  size_t length = message.ByteSizeLong();
  if (length > kMaxFrameBytes) return false;
  size_t start = out.size();
  out.resize(start + kFrameHeaderBytes + length);
  put_frame_header(&out[start], static_cast<uint32_t>(length));
  return message.SerializeToArray(&out[start + kFrameHeaderBytes], static_cast<int>(length));
}

// Collects bytes as they arrive and hands out whole frames. Holds at most one unfinished frame plus what one feed() brought.
class FrameBuffer {
 public:
  void feed(const char* data, size_t size) {
    if (start_ != 0 && start_ == bytes_.size()) clear();
    if (start_ >= kChunkBytes) {
      bytes_.erase(0, start_);
      start_ = 0;
    }
    bytes_.append(data, size);
  }

  // The next whole message, valid until the next feed(); nothing when more bytes are needed or after too_long().
  std::optional<std::string_view> next() {
    if (too_long_ || pending() < kFrameHeaderBytes) return std::nullopt;
    uint32_t length = get_frame_header(bytes_.data() + start_);
    if (length > kMaxFrameBytes) {
      too_long_ = true;
      return std::nullopt;
    }
    if (pending() < kFrameHeaderBytes + length) return std::nullopt;
    std::string_view message(bytes_.data() + start_ + kFrameHeaderBytes, length);
    start_ += kFrameHeaderBytes + length;
    return message;
  }

  // The peer announced a frame over kMaxFrameBytes: the stream cannot be read any further.
  bool too_long() const { return too_long_; }
  size_t pending() const { return bytes_.size() - start_; }

 private:
  void clear() {
    bytes_.clear();
    start_ = 0;
  }

  std::string bytes_;
  size_t start_ = 0;
  bool too_long_ = false;
};

}  // namespace ramet::abi
