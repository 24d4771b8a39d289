// Triple fault on kGo: an exception without an interrupt table.
#include "guest.h"

using namespace ramet::guests;

extern "C" void guest_main(const uint8_t*) {
  struct [[gnu::packed]] {
    uint16_t limit = 0;
    uint64_t base = 0;
  } no_table;
  report(kReady, kPanic);
  while (kind_of(next_command(0)) != kGo) report(kFail, kUnknownCommand);
  asm volatile("lidt %0; ud2" : : "m"(no_table));
  for (;;) {
  }
}
