// vmm/devices/vsock/metrics.h - what the vsock device counts. Thread: written with the device mutex held, read by metrics()
// likewise.
#pragma once

#include <cstdint>

namespace ramet::vmm {

struct VsockMetrics {
  uint64_t connections = 0;  // now, with those not yet answered
  uint64_t held_bytes = 0;   // now, waiting for hosts to read
  uint64_t opened = 0;       // answered by the guest
  uint64_t refused = 0;      // answered by RST
  uint64_t timed_out = 0;
  uint64_t resets_sent = 0;
  uint64_t resets_dropped = 0;  // answers to a flood, over the bound
  uint64_t packets_from_guest = 0;
  uint64_t packets_to_guest = 0;
  uint64_t bytes_from_guest = 0;
  uint64_t bytes_to_guest = 0;
  uint64_t malformed = 0;         // packets that break the protocol
  uint64_t transport_resets = 0;  // events told to the guest
};

}  // namespace ramet::vmm
