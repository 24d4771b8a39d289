// guest/metrics.h - what the machine is doing: memory, disk, load, CPU. Thread: stateless; reads /proc, does not wait for a
// disk.
#pragma once

#include "abi/agent.pb.h"

namespace ramet::guest {

abi::MetricsReport read_metrics();
uint64_t uptime_ns();

}  // namespace ramet::guest
