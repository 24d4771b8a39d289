// kvm/ioctl.h - ioctl as a Status. Private to src/kvm.
// Safety: callers pass a pointer to the struct that the request number encodes.
#pragma once

#include <sys/ioctl.h>

#include <cerrno>

#include "base/result.h"

namespace ramet::kvm {

template <class T>
Result<int> call(int fd, unsigned long request, T argument, const char* name) {
  int r;
  do r = ::ioctl(fd, request, argument);
  while (r < 0 && errno == EINTR);
  if (r < 0) return fail_errno(name);
  return r;
}

}  // namespace ramet::kvm
