// chunk/testing/contents.h - bytes that do not compress and that every test can make again from a number. Thread: pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "chunk/recipe.h"

namespace ramet::chunk::testing {

using Bytes = std::vector<std::byte>;

inline void fill_with_noise(std::span<std::byte> out, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t at = 0; at < out.size(); at += 8) {
    const uint64_t word = random();
    std::copy_n(reinterpret_cast<const std::byte*>(&word), std::min<size_t>(8, out.size() - at), out.data() + at);
  }
}
inline Bytes noise(size_t bytes, uint64_t seed) {
  Bytes out(bytes);
  fill_with_noise(out, seed);
  return out;
}

// Blocks of a file that all tests know: block n is always the same, and like no other.
inline void set_block(Bytes& chunk, size_t block, uint64_t n) {
  fill_with_noise(std::span(chunk).subspan(block * kBlockBytes, kBlockBytes), n * 7919 + 1);
}
inline Bytes blocks(uint64_t first, size_t count) {
  Bytes out(count * kBlockBytes);
  for (size_t i = 0; i < count; i++) set_block(out, i, first + i);
  return out;
}

}  // namespace ramet::chunk::testing
