// tests/guests/lib/protocol.h - the words a tiny guest and its test exchange through port 0x5f0.
// Not here: how the monitor carries them (vmm/control/control.proto, debug port).
// Used by freestanding guests and by tests: plain constants only, no library.
#pragma once

#include <stdint.h>

namespace ramet::guests {

inline constexpr uint16_t kDebugPort = 0x5f0;

// A word is kind << 28 | value. 0 is no word.
inline constexpr uint32_t kValueMask = 0x0fffffff;
constexpr uint32_t word(uint32_t kind, uint32_t value) { return kind << 28 | (value & kValueMask); }
constexpr uint32_t kind_of(uint32_t w) { return w >> 28; }
constexpr uint32_t value_of(uint32_t w) { return w & kValueMask; }

// Guest to test.
enum Report : uint32_t {
  kReady = 1,   // first word; value = a number that names the program, see Program
  kTick = 2,    // runs again after it was parked, or still runs (hog); value = its counter
  kAnswer = 3,  // the result of the command before
  kFail = 5,    // the command before cannot be done; value = reason, FailReason
};

enum Program : uint32_t { kCounter = 1, kDirty, kHog, kHang, kPanic, kFlood, kBlk, kBadQueue, kVsock, kKeeper };

enum FailReason : uint32_t { kUnknownCommand = 1, kDeviceMissing, kDeviceError, kTimeout };

// Test to guest. Each command is one word and is answered by one kAnswer or kFail, in order.
enum Command : uint32_t {
  kPing = 1,       // answers value
  kSetStart = 2,   // first page of the following commands; answers value
  kSetStride = 3,  // distance between pages, in pages; answers value
  kSetValue = 4,   // what kWrite stores; answers value
  kWrite = 5,      // stores the value in `value` pages; answers value
  kRead = 6,       // answers the number stored in page `value`
  kCount = 7,      // answers how many of `value` pages hold the value
  kStep = 8,       // counts on by `value`; answers the counter
  kGo = 9,         // does what the program is named after (hang, panic, flood); value chooses the way
};

// Ways of kGo for `hang`.
enum HangWay : uint32_t { kHangHalt = 1, kHangSpin = 2 };

}  // namespace ramet::guests
