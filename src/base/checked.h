// base/checked.h - arithmetic on numbers that come from a guest, a file or a peer, and the named alignment helpers.
// Thread: pure functions.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

namespace ramet {

template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) {
  T out{};
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_mul(T a, T b) {
  T out{};
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}
// True when [offset, offset+length) lies within [0, size).
[[nodiscard]] constexpr bool range_within(uint64_t offset, uint64_t length, uint64_t size) {
  return offset <= size && length <= size - offset;
}

[[nodiscard]] constexpr bool is_power_of_two(uint64_t v) { return v != 0 && (v & (v - 1)) == 0; }
// Requires: alignment is a power of two.
[[nodiscard]] constexpr uint64_t align_down(uint64_t v, uint64_t alignment) { return v & ~(alignment - 1); }
[[nodiscard]] constexpr bool is_aligned(uint64_t v, uint64_t alignment) { return (v & (alignment - 1)) == 0; }
// nullopt when the result does not fit.
[[nodiscard]] constexpr std::optional<uint64_t> align_up(uint64_t v, uint64_t alignment) {
  const std::optional<uint64_t> bumped = checked_add<uint64_t>(v, alignment - 1);
  if (!bumped) return std::nullopt;
  return align_down(*bumped, alignment);
}

}  // namespace ramet
