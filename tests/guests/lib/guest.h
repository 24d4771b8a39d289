// tests/guests/lib/guest.h - what a freestanding tiny guest needs: ports, the word protocol, memory beyond 4 GiB.
// Not here: virtio (lib/virtio.h). No library, no interrupts, one processor.
#pragma once

#include "protocol.h"

namespace ramet::guests {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint16_t kSerialPort = 0x3f8;

inline void out32(uint16_t port, uint32_t value) { asm volatile("outl %0, %1" : : "a"(value), "Nd"(port) : "memory"); }
inline void out8(uint16_t port, uint8_t value) { asm volatile("outb %0, %1" : : "a"(value), "Nd"(port) : "memory"); }
inline uint32_t in32(uint16_t port) {
  uint32_t value;
  asm volatile("inl %1, %0" : "=a"(value) : "Nd"(port) : "memory");
  return value;
}

inline void report(Report kind, uint32_t value) { out32(kDebugPort, word(kind, value)); }

// The next command. A 0 means that the machine was parked meanwhile (it may be a child now): tell the test that it runs.
inline uint32_t next_command(uint32_t counter) {
  for (;;) {
    uint32_t w = in32(kDebugPort);
    if (w != 0) return w;
    report(kTick, counter);
  }
}

// Guest RAM by physical address, seen through the one-to-one map.
inline volatile uint64_t& ram_at(uint64_t address) { return *reinterpret_cast<volatile uint64_t*>(address); }

}  // namespace ramet::guests

extern "C" [[noreturn]] void guest_main(const uint8_t* boot_params);
