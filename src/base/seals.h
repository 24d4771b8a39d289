// base/seals.h - memory files that nobody can change, or make writable, any more. Thread: stateless. Source: fcntl(2).
#pragma once

#include "base/result.h"

namespace ramet {

// For good.   Errors: by errno (EBUSY: somebody has it mapped for writing).
Status seal_file(int fd);
bool is_sealed(int fd);

}  // namespace ramet
