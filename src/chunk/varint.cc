#include "chunk/varint.h"

#include <algorithm>

namespace ramet::chunk {

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
  out += static_cast<char>(value);
}

std::optional<uint64_t> Decoder::varint() {
  uint64_t value = 0;
  for (size_t i = 0; i < std::min(kMaxVarintBytes, rest_.size()); i++) {
    const uint64_t bits = std::to_integer<uint64_t>(rest_[i] & std::byte{0x7f});
    const unsigned shift = 7 * static_cast<unsigned>(i);
    if (bits << shift >> shift != bits) return std::nullopt;  // over 64 bits
    value |= bits << shift;
    if ((rest_[i] & std::byte{0x80}) != std::byte{0}) continue;
    if (i > 0 && bits == 0) return std::nullopt;  // longer than needed
    rest_ = rest_.subspan(i + 1);
    return value;
  }
  return std::nullopt;
}

std::optional<uint8_t> Decoder::byte() {
  if (rest_.empty()) return std::nullopt;
  const uint8_t b = std::to_integer<uint8_t>(rest_.front());
  rest_ = rest_.subspan(1);
  return b;
}

bool Decoder::bytes(std::span<std::byte> out) {
  if (rest_.size() < out.size()) return false;
  std::copy_n(rest_.begin(), out.size(), out.begin());
  rest_ = rest_.subspan(out.size());
  return true;
}

std::optional<std::span<const std::byte>> Decoder::view(size_t size) {
  if (rest_.size() < size) return std::nullopt;
  const std::span<const std::byte> out = rest_.first(size);
  rest_ = rest_.subspan(size);
  return out;
}

}  // namespace ramet::chunk
