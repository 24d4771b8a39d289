// commit/testing/private_ram.h - memory mapped as the monitor maps guest RAM: privately over two files, and anonymous with huge
// pages where it was zero. Not here: KVM. Thread: one.
#pragma once

#include <sys/mman.h>

#include <stdexcept>

#include "base/file.h"
#include "base/mapped_region.h"
#include "image/memory_layout.h"

namespace ramet::commit::testing {

class PrivateRam {
 public:
  // The files have RAM's size and may be closed afterwards.
  PrivateRam(const image::ZeroMap& zeros, int even, int odd) : bytes_(zeros.ram_bytes()) {
    region_ = MappedRegion::map(bytes_ + image::kRamBlockBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE).value();
    const uintptr_t at = reinterpret_cast<uintptr_t>(region_.data());
    base_ = region_.data() + (image::kRamBlockBytes - at % image::kRamBlockBytes) % image::kRamBlockBytes;
    for (const image::RamPiece& piece : zeros.pieces()) {
      const int file = piece.file == 0 ? even : odd, flags = MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED;
      // Safety: inside of the region reserved above, whose owner unmaps all of it.
      void* const p = piece.anonymous
                          ? ::mmap(base_ + piece.offset, piece.length, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0)
                          : ::mmap(base_ + piece.offset, piece.length, PROT_READ | PROT_WRITE, flags, file,
                                   static_cast<off_t>(piece.offset));
      if (p == MAP_FAILED) throw std::runtime_error("mmap");
      if (piece.anonymous) ::madvise(p, piece.length, MADV_HUGEPAGE);
    }
  }
  std::byte* data() const { return base_; }
  uint64_t size() const { return bytes_; }
  std::span<std::byte> bytes() const { return {base_, bytes_}; }
  std::span<std::byte> page(uint64_t number) const { return bytes().subspan(number * 4096, 4096); }
  uint64_t pages() const { return bytes_ / 4096; }

 private:
  uint64_t bytes_;
  MappedRegion region_;
  std::byte* base_ = nullptr;
};

}  // namespace ramet::commit::testing
