#include "chunk/digest.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cstring>

namespace ramet::chunk {
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
  return chunk::from_hex(hex, d.bytes) ? std::optional(d) : std::nullopt;
}

Digest sha256(std::span<const std::byte> data) {
  Digest d;
  // SHA256() keeps its state on the stack; EVP would allocate for each of the millions of blocks.
  ::SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(), reinterpret_cast<unsigned char*>(d.bytes.data()));
  return d;
}

BlockPrint print_of(std::span<const std::byte> block) {
  const Digest d = sha256(block);
  BlockPrint print;
  std::copy_n(d.bytes.begin(), print.bytes.size(), print.bytes.begin());
  return print;
}

size_t DigestHash::operator()(const Digest& d) const {
  size_t h;  // the digest is as good a hash as any
  std::memcpy(&h, d.bytes.data(), sizeof h);
  return h;
}

}  // namespace ramet::chunk
