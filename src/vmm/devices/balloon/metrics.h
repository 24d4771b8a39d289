// vmm/devices/balloon/metrics.h - what the balloon counts. Thread: with the device mutex held.
#pragma once

#include <cstdint>

namespace ramet::vmm {

struct BalloonMetrics {
  uint64_t reported_bytes = 0;  // free pages the guest reported and the host was asked to drop
  uint64_t inflated_bytes = 0;  // pages put into the balloon so far
  uint64_t refused_bytes = 0;   // not RAM, not whole pages, or over the bound of one kick
  uint64_t reports = 0;
};

}  // namespace ramet::vmm
