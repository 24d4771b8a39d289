// base/all_zero.h - whether bytes are all zero: memory, disks and stores leave such blocks out. Thread: pure function.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace ramet {

// Every byte equals its neighbour and the first is zero: memcmp runs at memory speed.
inline bool all_zero(std::span<const std::byte> bytes) {
  return bytes.empty() || (bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace ramet
