// host/crash_point.h - named steps at which a test may have the daemon killed. Always compiled in, one comparison when unused.
// RAMET_CRASH_AT=step kills this process with SIGKILL when the step is reached; RAMET_CRASH_AT=step:3 at the third time.
// Every step stands *after* the thing its name says was done. `all_crash_points` is what tests walk.
// Thread: any.
#pragma once

#include <span>
#include <string_view>

namespace ramet::host {

// Requires: `step` is in the list.
void crash_point(std::string_view step);
std::span<const std::string_view> all_crash_points();

}  // namespace ramet::host
