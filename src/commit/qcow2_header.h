// commit/qcow2_header.h - the first bytes of a qcow2 file, read before any other program opens it: a program that opens an
// image also opens the files that the image names. Accepted is what consists of this file alone. Source: QEMU's
// docs/interop/qcow2.txt. Not here: clusters. Thread: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace ramet::commit {

inline constexpr size_t kQcow2HeaderBytes = 104;

struct Qcow2Header {
  uint32_t version = 0;
  uint64_t disk_bytes = 0;
};

// `bytes`: the first kQcow2HeaderBytes of the file, or all of it.   Errors: kCorrupt (no qcow2), kUnsupported (a later version,
// an unknown feature), kInvalid (a backing file, an external data file, encrypted, empty, over the limit).
Result<Qcow2Header> decode_qcow2_header(std::span<const std::byte> bytes, uint64_t max_disk_bytes);

}  // namespace ramet::commit
