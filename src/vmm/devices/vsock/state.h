// vmm/devices/vsock/state.h - what of the vsock device outlives its process, as bytes: no stream does, only the position of the
// port counter and how far the driver has been told that its streams are gone. Thread: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ramet::vmm::vsock {

// May packets go to the guest? After a fork or a restore its old streams are dead, and a packet for a new one that came before
// the driver has reset the old ones would be lost with them.
//
//   kOpen --fork, restore--> kMustAnnounce --event put into the event queue--> kAnnounced --driver gave the buffer back-->
//   kOpen
//                                                        kAnnounced --fork, restore--> kAnnounced (the same event does it)
enum class Gate : uint8_t { kOpen = 0, kMustAnnounce = 1, kAnnounced = 2 };

struct State {
  uint32_t last_port = 0;  // host port given out last
  Gate gate = Gate::kOpen;
  uint16_t announced_at = 0;  // kAnnounced: the event queue's available index when the event was put

  friend bool operator==(const State&, const State&) = default;
};

std::string encode_state(const State& state);
// Errors: kCorrupt (length, version or a value out of range).
Result<State> decode_state(std::string_view bytes);

}  // namespace ramet::vmm::vsock
