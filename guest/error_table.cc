#include "error_table.h"

namespace ramet::guest {

abi::ErrorCode code_of(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::kInvalid: return abi::ERROR_INVALID;
    case ErrorKind::kNotFound: return abi::ERROR_NOT_FOUND;
    case ErrorKind::kExists: return abi::ERROR_EXISTS;
    case ErrorKind::kConflict: return abi::ERROR_CONFLICT;
    case ErrorKind::kNoSpace: return abi::ERROR_NO_SPACE;
    case ErrorKind::kNoMemory: return abi::ERROR_LIMIT;
    case ErrorKind::kPermission: return abi::ERROR_DENIED;
    case ErrorKind::kTimeout: return abi::ERROR_LIMIT;
    case ErrorKind::kUnavailable: return abi::ERROR_LIMIT;
    case ErrorKind::kUnsupported: return abi::ERROR_UNSUPPORTED;
    case ErrorKind::kNotQuiescent: return abi::ERROR_GUEST_NOT_QUIESCENT;
    case ErrorKind::kCorrupt:
    case ErrorKind::kIo:
    case ErrorKind::kCancelled: return abi::ERROR_IO;
    case ErrorKind::kInternal: return abi::ERROR_INTERNAL;
  }
  return abi::ERROR_INTERNAL;
}

abi::Event result_event(const Error& error) {
  abi::Event event;
  abi::Error* out = event.mutable_result()->mutable_error();
  out->set_code(code_of(error));
  out->set_message(error.message());
  out->set_sys_errno(error.err());
  return event;
}

abi::Event success_event() {
  abi::Event event;
  event.mutable_result();
  return event;
}

}  // namespace ramet::guest
