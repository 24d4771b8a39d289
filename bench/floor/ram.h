// bench/floor/ram.h - guest RAM of the floor programme, mapped the way the monitor maps it.
// Not here: anything about KVM (bare_vm.h). One thread. A Ram owns its address range; the memfds of a BaseImage live as long as
// the process.
//
// Base parts are MAP_PRIVATE segments of 16 MiB taken in turn from two memfds, so that neighbours never merge into one mapping;
// 2 MiB blocks that are zero in the base are anonymous memory with huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ramet::bench {

inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr uint64_t kSegmentBytes = 16 * kMiB;
inline constexpr uint64_t kBlockBytes = 2 * kMiB;

struct BaseImage {
  int memfd[2] = {-1, -1};
  std::vector<bool> block_is_zero;  // by 2 MiB block
};

class Ram {
 public:
  explicit Ram(uint64_t bytes);  // anonymous, all zero
  Ram(uint64_t bytes, const BaseImage& base);
  ~Ram();
  Ram(const Ram&) = delete;
  Ram& operator=(const Ram&) = delete;

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // Copies what is not zero into two sealed memfds.
  BaseImage seal() const;

 private:
  uint64_t bytes_;
  uint8_t* data_;
};

}  // namespace ramet::bench
