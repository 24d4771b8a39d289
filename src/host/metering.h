// host/metering.h - how much memory a machine really holds, read from the page tables of its process.
//   diverged  anonymous pages of its guest RAM: differ from the image
//   own       of these, exclusively mapped (pagemap bit 56): nobody else has them
//   share     Pss_Anon of the whole process: sums over all machines to the host's anonymous memory
// A walk takes the process's map lock, so it must not happen while a fork of it is pending; callers see to that.
// Not here: when and how often. Thread: stateless.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/result.h"

namespace ramet::host {

struct MemoryUse {
  uint64_t diverged_bytes = 0;
  uint64_t own_bytes = 0;
  uint64_t share_bytes = 0;
};

// Errors: kNotFound (the process is gone), kPermission.
Result<MemoryUse> measure_memory(pid_t pid, uint64_t ram_address, uint64_t ram_bytes);

}  // namespace ramet::host
