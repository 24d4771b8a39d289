// Stops answering on kGo: halts with interrupts off, or jumps to itself.
#include "guest.h"

using namespace ramet::guests;

extern "C" void guest_main(const uint8_t*) {
  report(kReady, kHang);
  uint32_t command = next_command(0);
  while (kind_of(command) != kGo) {
    report(kFail, kUnknownCommand);
    command = next_command(0);
  }
  if (value_of(command) == kHangHalt)
    for (;;) asm volatile("cli; hlt");
  for (;;) asm volatile("pause");
}
