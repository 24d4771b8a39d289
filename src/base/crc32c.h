// base/crc32c.h - CRC-32C, the checksum of our file formats against accidents; it proves nothing against an attacker.
// Thread: pure function.
#pragma once

#include <boost/crc.hpp>
#include <cstddef>
#include <cstdint>

namespace ramet {

inline uint32_t crc32c(const void* data, size_t bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(data, bytes);
  return crc.checksum();
}

}  // namespace ramet
