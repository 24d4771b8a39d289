#include "ram.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "die.h"

namespace ramet::bench {
namespace {

uint8_t* reserve(uint64_t bytes) {
  // Aligned to a segment, so that blocks are huge-page aligned.
  uint64_t padded = bytes + kSegmentBytes;
  void* p = mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) die("reserve RAM");
  uint64_t start = reinterpret_cast<uint64_t>(p);
  uint64_t aligned = (start + kSegmentBytes - 1) / kSegmentBytes * kSegmentBytes;
  if (aligned > start) munmap(p, aligned - start);
  uint64_t tail = start + padded - (aligned + bytes);
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  return reinterpret_cast<uint8_t*>(aligned);
}

void map(uint8_t* at, uint64_t bytes, int fd, uint64_t offset) {
  int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, flags, fd, fd < 0 ? 0 : static_cast<off_t>(offset)) == MAP_FAILED) die("map RAM");
  if (fd < 0) madvise(at, bytes, MADV_HUGEPAGE);
}

bool is_zero(const uint8_t* p, uint64_t bytes) { return p[0] == 0 && std::memcmp(p, p + 1, bytes - 1) == 0; }

// Whether anything in the block was ever touched; a look at the bytes would allocate what was not.
bool untouched(uint8_t* block) {
  unsigned char resident[kBlockBytes / 4096];
  if (mincore(block, kBlockBytes, resident) < 0) die("mincore");
  for (unsigned char r : resident)
    if ((r & 1) != 0) return false;
  return true;
}

}  // namespace

Ram::Ram(uint64_t bytes) : bytes_(bytes), data_(reserve(bytes)) { map(data_, bytes, -1, 0); }

Ram::Ram(uint64_t bytes, const BaseImage& base) : bytes_(bytes), data_(reserve(bytes)) {
  for (uint64_t segment = 0; segment < bytes; segment += kSegmentBytes) {
    uint64_t end = segment + kSegmentBytes < bytes ? segment + kSegmentBytes : bytes;
    int fd = base.memfd[segment / kSegmentBytes % 2];
    for (uint64_t at = segment; at < end;) {
      bool zero = base.block_is_zero[at / kBlockBytes];
      uint64_t run = at;
      while (run < end && base.block_is_zero[run / kBlockBytes] == zero) run += kBlockBytes;
      map(data_ + at, run - at, zero ? -1 : fd, at);
      at = run;
    }
  }
}

Ram::~Ram() { munmap(data_, bytes_); }

BaseImage Ram::seal() const {
  BaseImage base;
  base.block_is_zero.resize(bytes_ / kBlockBytes);
  for (int& fd : base.memfd) {
    fd = check(memfd_create("floor-base", MFD_CLOEXEC | MFD_ALLOW_SEALING), "memfd_create");
    check(ftruncate(fd, static_cast<off_t>(bytes_)), "ftruncate");
  }
  for (uint64_t at = 0; at < bytes_; at += kBlockBytes) {
    bool zero = untouched(data_ + at) || is_zero(data_ + at, kBlockBytes);
    base.block_is_zero[at / kBlockBytes] = zero;
    if (zero) continue;
    ssize_t n = pwrite(base.memfd[at / kSegmentBytes % 2], data_ + at, kBlockBytes, static_cast<off_t>(at));
    if (n != static_cast<ssize_t>(kBlockBytes)) die("pwrite base");
  }
  for (int fd : base.memfd) check(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL), "seal");
  return base;
}

}  // namespace ramet::bench
