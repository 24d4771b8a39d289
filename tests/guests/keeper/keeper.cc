// Goes over its disk again and again without being told to: wants in each block what the base or it itself wrote there, and
// writes every third one anew. A block that is wrong ends the machine by a triple fault; a whole pass is a line on the serial
// port. A block holds its number in word 1 and in word 511 the complement of word 0, which is the pass it was written in or the
// base's own.
#include "virtio.h"

using namespace ramet::guests;

namespace {

constexpr uint32_t kBlocks = 256;  // of the disk; block 0 is left alone
constexpr uint32_t kWrittenEvery = 3;

BlockDriver disk(UINT32_MAX);    // reads of a chunked base may wait for the daemon
uint64_t written[kBlocks] = {};  // word 0; 0: still the base's

[[noreturn]] void end() {
  struct [[gnu::packed]] {
    uint16_t limit = 0;
    uint64_t base = 0;
  } no_table;
  asm volatile("lidt %0; ud2" : : "m"(no_table));
  for (;;) {
  }
}

bool is_right(uint32_t block) {
  const uint64_t version = disk.buffer()[0];
  return disk.buffer()[1] == block && disk.buffer()[511] == ~version && (written[block] == 0 || written[block] == version);
}

void write(uint32_t block, uint64_t version) {
  disk.buffer()[0] = written[block] = version;
  disk.buffer()[511] = ~version;
  if (!disk.write(block)) end();
}

}  // namespace

extern "C" void guest_main(const uint8_t*) {
  report(disk.start() ? kReady : kFail, kKeeper);
  for (uint64_t pass = 1;; pass++) {
    for (uint32_t block = 1; block < kBlocks; block++) {
      if (!disk.read(block) || !is_right(block)) end();
      if ((block + pass) % kWrittenEvery == 0) write(block, pass);
    }
    if (!disk.flush()) end();
    for (const char* c = "pass\n"; *c; c++) out8(kSerialPort, static_cast<uint8_t>(*c));
  }
}
