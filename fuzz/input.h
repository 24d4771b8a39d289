// fuzz/input.h - a fuzz input read as a sequence of numbers and choices, front to back; past its end everything is zero.
// Not here: libFuzzer's own header, which only clang has, while every compiler replays the corpora.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace ramet {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  bool empty() const { return left_ == 0; }
  template <std::integral T>
  T number() {
    T value{};
    const size_t n = std::min(sizeof value, left_);
    if (n) std::memcpy(&value, data_, n);
    data_ += n;
    left_ -= n;
    return value;
  }
  bool coin() { return number<uint8_t>() & 1; }
  // One in `n`.
  bool rarely(uint8_t n) { return number<uint8_t>() % n == n - 1; }
  // Within [0, most].
  uint32_t upto(uint32_t most) {
    const uint64_t raw = most < 256 ? number<uint8_t>() : most < 65536 ? number<uint16_t>() : number<uint32_t>();
    return static_cast<uint32_t>(raw % (static_cast<uint64_t>(most) + 1));
  }
  std::string bytes(size_t most) {
    const size_t n = std::min<size_t>(upto(static_cast<uint32_t>(most)), left_);
    std::string out(reinterpret_cast<const char*>(data_), n);
    data_ += n;
    left_ -= n;
    return out;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

}  // namespace ramet
