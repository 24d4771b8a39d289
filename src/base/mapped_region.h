// base/mapped_region.h - the owner of an mmap'ed range. A resource: moved, never copied; unmapped in the destructor.
// Thread: the owner synchronises. Errors: by errno.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/result.h"

namespace ramet {

class MappedRegion {
 public:
  MappedRegion() = default;
  // Takes over an existing mapping.
  MappedRegion(void* base, size_t size) : base_(static_cast<std::byte*>(base)), size_(size) {}
  MappedRegion(MappedRegion&& o) noexcept : base_(std::exchange(o.base_, nullptr)), size_(std::exchange(o.size_, 0)) {}
  MappedRegion& operator=(MappedRegion&& o) noexcept {
    if (this != &o) {
      unmap();
      base_ = std::exchange(o.base_, nullptr);
      size_ = std::exchange(o.size_, 0);
    }
    return *this;
  }
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;
  ~MappedRegion() { unmap(); }

  static Result<MappedRegion> map(size_t size, int prot, int flags, int fd = -1, uint64_t offset = 0);

  std::byte* data() const { return base_; }
  size_t size() const { return size_; }
  explicit operator bool() const { return base_ != nullptr; }
  std::span<std::byte> bytes() const { return {base_, size_}; }

 private:
  void unmap() {
    if (base_) ::munmap(base_, size_);
  }
  std::byte* base_ = nullptr;
  size_t size_ = 0;
};

}  // namespace ramet
