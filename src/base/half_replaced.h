// base/half_replaced.h - what replace_file() leaves beside a file when its process is killed in the middle: NAME.tmp.PID.
// Not here: other leftovers. Thread: any.
#pragma once

#include <string>

namespace ramet {

// Of processes that have ended; what a living one writes stays.
void remove_half_replaced(const std::string& directory);

}  // namespace ramet
