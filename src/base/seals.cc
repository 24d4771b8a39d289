#include "base/seals.h"

#include <fcntl.h>

namespace ramet {

Status seal_file(int fd) {
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
    return fail_errno("seal a memory file");
  return {};
}

bool is_sealed(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_WRITE) != 0;
}

}  // namespace ramet
