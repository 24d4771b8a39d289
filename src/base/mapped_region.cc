#include "base/mapped_region.h"

namespace ramet {

Result<MappedRegion> MappedRegion::map(size_t size, int prot, int flags, int fd, uint64_t offset) {
  void* p = ::mmap(nullptr, size, prot, flags, fd, static_cast<off_t>(offset));
  if (p == MAP_FAILED) return fail_errno("map " + std::to_string(size) + " bytes");
  return MappedRegion(p, size);
}

}  // namespace ramet
