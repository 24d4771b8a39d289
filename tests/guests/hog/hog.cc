// Stays in guest code: what a busy program looks like to the monitor. Ticks seldom, reads no command.
#include "guest.h"

using namespace ramet::guests;

extern "C" void guest_main(const uint8_t*) {
  constexpr uint32_t kRoundsPerTick = 4096;
  report(kReady, kHog);
  for (uint32_t tick = 1;; tick++) {
    for (uint32_t i = 0; i < kRoundsPerTick; i++) asm volatile("" : : : "memory");
    report(kTick, tick);
  }
}
