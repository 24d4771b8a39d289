#include "base/clock.h"

#include <time.h>

namespace ramet {
namespace {
int64_t read_ns(clockid_t id) {
  timespec ts;
  ::clock_gettime(id, &ts);
  return static_cast<int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}
}  // namespace

int64_t monotonic_ns() { return read_ns(CLOCK_MONOTONIC); }
int64_t monotonic_raw_ns() { return read_ns(CLOCK_MONOTONIC_RAW); }
int64_t wall_ns() { return read_ns(CLOCK_REALTIME); }

}  // namespace ramet
