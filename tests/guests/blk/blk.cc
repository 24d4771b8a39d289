// Keeps one counter twice: in RAM, and durably in block 0 of the disk. Each round reads the block, wants the counter of RAM in
// it, counts on, writes, flushes. If a fork ever gives a branch RAM and disk of two different instants, the next round fails.
#include "virtio.h"

using namespace ramet::guests;

namespace {

BlockDriver disk(UINT32_MAX);  // reads of a chunked base may wait for the daemon
uint32_t counter = 0;

// Every word of the block holds the counter, so that a torn block shows.
bool disk_agrees() {
  if (!disk.read(0)) return false;
  return disk.buffer()[0] == counter && disk.buffer()[511] == counter;
}

FailReason round() {
  if (!disk_agrees()) return kDeviceError;
  counter++;
  disk.buffer()[0] = counter;
  disk.buffer()[511] = counter;
  if (!disk.write(0) || !disk.flush()) return kTimeout;
  return FailReason{0};
}

}  // namespace

extern "C" void guest_main(const uint8_t*) {
  constexpr uint32_t kRoundsPerTick = 8;
  report(disk.start() ? kReady : kFail, kBlk);
  for (;;) {
    uint32_t command = next_command(counter);
    FailReason reason{0};
    switch (kind_of(command)) {
      case kPing: report(kAnswer, value_of(command)); break;
      case kStep:
        for (uint32_t i = 1; i <= value_of(command) && reason == 0; i++) {
          reason = round();
          if (i % kRoundsPerTick == 0) report(kTick, counter);
        }
        report(reason == 0 ? kAnswer : kFail, reason == 0 ? counter : reason);
        break;
      case kRead:  // what block `value` of the disk holds
        if (disk.read(value_of(command)))
          report(kAnswer, static_cast<uint32_t>(disk.buffer()[0]));
        else
          report(kFail, kDeviceError);
        break;
      case kCount:  // what RAM holds
        report(kAnswer, counter);
        break;
      default: report(kFail, kUnknownCommand);
    }
  }
}
