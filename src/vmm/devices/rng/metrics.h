// vmm/devices/rng/metrics.h - what the entropy device counts. Thread: with the device mutex held.
#pragma once

#include <cstdint>

namespace ramet::vmm {

struct RngMetrics {
  uint64_t requests = 0;
  uint64_t bytes = 0;
};

}  // namespace ramet::vmm
