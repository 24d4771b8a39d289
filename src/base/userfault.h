// base/userfault.h - userfaultfd(2): a thread that touches a page of a registered mapping that is not there yet waits, and
// whoever holds the descriptor is told and lets it go on. For private mappings of a memory file the page comes into being by
// writing it to the file: after that faults of it ask nobody. Not here: who fills what (commit/demand_fill.h). Thread:
// stateless. A descriptor belongs to the process that created it and stands for that process's mappings only; children of
// fork(2) are not covered, and must have their own. Source: ioctl_userfaultfd(2), Documentation/admin-guide/mm/userfaultfd.rst.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet {

// The device that creates descriptors which also cover faults of the kernel, as KVM makes them.
// Errors: kUnsupported (a kernel before 6.1, or without userfaultfd), kIo.
Result<UniqueFd> open_userfault_device();

// Non-blocking.   Errors: kUnsupported (no such device, or no faults of memory files), by errno.
Result<UniqueFd> create_userfault(int device);
// Faults of pages that are in no file wait from now on.   Requires: page-aligned, private mappings of memory files.
Status watch_faults(int userfault, std::span<std::byte> range);

// What another process calls a userfault descriptor.
bool is_userfault(int fd);
// The address that a thread waits for, of whichever the kernel tells first; nullopt: none now.   Errors: kIo, kCorrupt.
Result<std::optional<uint64_t>> next_fault(int userfault);
// Whoever waits in the range looks again.   Requires: page-aligned.   Errors: by errno (the process is gone: ESRCH).
Status wake_faults(int userfault, uint64_t address, uint64_t length);

}  // namespace ramet
