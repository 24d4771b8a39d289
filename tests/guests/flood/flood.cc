// Writes to the serial port without end after kGo; a tick per 4,096 bytes shows that it is still at it.
#include "guest.h"

using namespace ramet::guests;

extern "C" void guest_main(const uint8_t*) {
  constexpr uint32_t kBytesPerTick = 4096;
  report(kReady, kFlood);
  while (kind_of(next_command(0)) != kGo) report(kFail, kUnknownCommand);
  report(kAnswer, 0);
  for (uint32_t tick = 1;; tick++) {
    for (uint32_t i = 0; i < kBytesPerTick; i++) out8(kSerialPort, i % 64 == 63 ? '\n' : static_cast<uint8_t>('0' + i % 64));
    report(kTick, tick);
  }
}
