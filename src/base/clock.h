// base/clock.h - time: monotonic for intervals and deadlines, wall for people. Units are in the types.
#pragma once

#include <chrono>
#include <cstdint>

namespace ramet {

using Nanoseconds = std::chrono::nanoseconds;
using Milliseconds = std::chrono::milliseconds;
using MonotonicClock = std::chrono::steady_clock;
using Deadline = MonotonicClock::time_point;

inline Deadline deadline_after(std::chrono::nanoseconds d) { return MonotonicClock::now() + d; }
// Never negative.
inline Milliseconds time_left(Deadline d) {
  const Milliseconds left = std::chrono::ceil<Milliseconds>(d - MonotonicClock::now());
  return left.count() > 0 ? left : Milliseconds(0);
}
int64_t monotonic_ns();      // CLOCK_MONOTONIC, comparable between processes of one host
int64_t monotonic_raw_ns();  // CLOCK_MONOTONIC_RAW: what kvm-clock runs on
int64_t wall_ns();           // CLOCK_REALTIME since the epoch

}  // namespace ramet
