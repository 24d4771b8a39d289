// error_numbers.h - the one table from kind of error to the errno that a client of NBD is told. Thread: pure.
#pragma once

#include <cerrno>

#include "base/result.h"

namespace ramet::nbd {

// NBD knows EPERM, EIO, ENOMEM, EINVAL, ENOSPC, ENOTSUP and ESHUTDOWN only.
constexpr int error_number(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalid: return EINVAL;
    case ErrorKind::kPermission: return EPERM;
    case ErrorKind::kNoSpace: return ENOSPC;
    case ErrorKind::kNoMemory: return ENOMEM;
    case ErrorKind::kUnsupported: return ENOTSUP;
    case ErrorKind::kNotFound:
    case ErrorKind::kExists:
    case ErrorKind::kConflict:
    case ErrorKind::kTimeout:
    case ErrorKind::kUnavailable:
    case ErrorKind::kCorrupt:
    case ErrorKind::kIo:
    case ErrorKind::kCancelled:
    case ErrorKind::kNotQuiescent:
    case ErrorKind::kInternal: return EIO;
  }
  return EIO;
}

}  // namespace ramet::nbd
