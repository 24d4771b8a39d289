// base/crc32c.h - CRC-32C, the checksum of our file formats against accidents; it proves nothing against an attacker.
// By the instruction that every processor with virtualization has (SSE 4.2): packs of 64 MiB are summed whole.
// Thread: pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ramet {

[[gnu::target("sse4.2")]] inline uint32_t crc32c(const void* data, size_t bytes) {
  const unsigned char* p = static_cast<const unsigned char*>(data);
  uint64_t crc = 0xffffffff;
  for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), p += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, p, sizeof word);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  uint32_t rest = static_cast<uint32_t>(crc);
  for (; bytes > 0; bytes--) rest = __builtin_ia32_crc32qi(rest, *p++);
  return ~rest;
}

}  // namespace ramet
