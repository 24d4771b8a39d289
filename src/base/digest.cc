#include "base/digest.h"

#include <cstring>

namespace ramet {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

}  // namespace

std::string to_hex(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve(2 * bytes.size());
  for (const std::byte b : bytes) {
    out += kHexDigits[std::to_integer<size_t>(b >> 4)];
    out += kHexDigits[std::to_integer<size_t>(b & std::byte{15})];
  }
  return out;
}

bool from_hex(std::string_view hex, std::span<std::byte> out) {
  if (hex.size() != 2 * out.size()) return false;
  for (size_t i = 0; i < out.size(); i++) {
    const size_t high = kHexDigits.find(hex[2 * i]), low = kHexDigits.find(hex[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return false;
    out[i] = static_cast<std::byte>(high << 4 | low);
  }
  return true;
}

std::optional<Digest> Digest::from_hex(std::string_view hex) {
  Digest d;
  return ramet::from_hex(hex, d.bytes) ? std::optional(d) : std::nullopt;
}

size_t DigestHash::operator()(const Digest& d) const {
  size_t h;  // the digest is as good a hash as any
  std::memcpy(&h, d.bytes.data(), sizeof h);
  return h;
}

}  // namespace ramet
