// base/digest.h - a SHA-256 as a value: compared, printed, read. Not here: computing one (chunk/digest.h; OpenSSL has no place
// in the hostile process). Thread: values.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ramet {

// Lower-case hexadecimal digits, two a byte.
std::string to_hex(std::span<const std::byte> bytes);
// False: not exactly the digits of out.size() bytes.
bool from_hex(std::string_view hex, std::span<std::byte> out);

struct Digest {
  std::array<std::byte, 32> bytes{};
  friend auto operator<=>(const Digest&, const Digest&) = default;
  std::string to_hex() const { return ramet::to_hex(bytes); }
  static std::optional<Digest> from_hex(std::string_view hex);
};

struct DigestHash {
  size_t operator()(const Digest& d) const;
};

}  // namespace ramet
