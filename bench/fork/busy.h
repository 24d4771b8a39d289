// bench/fork/busy.h - forks of a guest that never leaves guest code by itself: how long until its vCPU stands still, how long
// it stands. Not here: the comparison with the floor (subject.h), whose one thread cannot be kicked. One thread.
#pragma once

#include "base/result.h"
#include "report.h"

namespace ramet::bench {

Status run_busy(Report& report, int n);

}  // namespace ramet::bench
