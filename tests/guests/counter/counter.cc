// Counts in RAM when told to. The counter lives in guest RAM only, so branches of a fork must keep their own.
#include "guest.h"

using namespace ramet::guests;

namespace {
volatile uint32_t counter = 0;
}

extern "C" void guest_main(const uint8_t*) {
  report(kReady, kCounter);
  for (;;) {
    uint32_t command = next_command(counter);
    switch (kind_of(command)) {
      case kPing: report(kAnswer, value_of(command)); break;
      case kStep:
        for (uint32_t i = 0; i < value_of(command); i++) counter = counter + 1;
        report(kAnswer, counter);
        break;
      default: report(kFail, kUnknownCommand);
    }
  }
}
