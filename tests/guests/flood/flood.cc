// Writes to the serial port without end after kGo; a tick per 4,096 bytes shows that it is still at it. String output: no
// instruction between two bytes that an interpreting KVM would have to carry out.
#include "guest.h"

using namespace ramet::guests;

extern "C" void guest_main(const uint8_t*) {
  constexpr uint32_t kBytesPerTick = 4096;
  static uint8_t text[kBytesPerTick];
  for (uint32_t i = 0; i < kBytesPerTick; i++) text[i] = i % 64 == 63 ? '\n' : static_cast<uint8_t>('0' + i % 64);
  report(kReady, kFlood);
  while (kind_of(next_command(0)) != kGo) report(kFail, kUnknownCommand);
  report(kAnswer, 0);
  for (uint32_t tick = 1;; tick++) {
    const uint8_t* from = text;
    uint64_t count = kBytesPerTick;
    asm volatile("rep outsb" : "+S"(from), "+c"(count) : "d"(kSerialPort) : "memory");
    report(kTick, tick);
  }
}
