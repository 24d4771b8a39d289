// chunk/digest.h - SHA-256, the name of a chunk and the proof of a frame; and the short prefix by which blocks are compared.
// Thread: pure functions. Source: FIPS 180-4, by OpenSSL.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ramet::chunk {

// Lower-case hexadecimal digits, two a byte.
std::string to_hex(std::span<const std::byte> bytes);
// False: not exactly the digits of out.size() bytes.
bool from_hex(std::string_view hex, std::span<std::byte> out);

struct Digest {
  std::array<std::byte, 32> bytes{};
  friend auto operator<=>(const Digest&, const Digest&) = default;
  std::string to_hex() const { return chunk::to_hex(bytes); }
  static std::optional<Digest> from_hex(std::string_view hex);
};

Digest sha256(std::span<const std::byte> data);

// The first 16 bytes of a block's SHA-256. Two blocks with the same one are taken for equal: finding such a pair on purpose
// takes 2^64 steps, and harms only the domain of whoever does, where the chunk's own digest then tells it.
struct BlockPrint {
  std::array<std::byte, 16> bytes{};
  friend auto operator<=>(const BlockPrint&, const BlockPrint&) = default;
};
BlockPrint print_of(std::span<const std::byte> block);

struct DigestHash {
  size_t operator()(const Digest& d) const;
};

}  // namespace ramet::chunk
