// host/admission.h - is there room for one more? Says no with the numbers instead of letting the kernel say it later.
// Host: MemAvailable less what is promised to operations under way less the reserve; free bytes of the state's file system.
// Family: what it uses now plus a full copy of the parent's own pages must fit its memory.max: after a fork the parent may
// rewrite all of them while the old ones live on in its children, and must not be killed for it. (Reserving a copy per child as
// well would refuse what forks are for: many branches that change little.) Not here: enforcing (cgroup.h). Thread: any.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"

namespace ramet::host {

struct AdmissionLimits {
  uint64_t memory_reserve_bytes = 0;
  uint64_t disk_reserve_bytes = 0;
};

class Admission {
 public:
  // Memory promised to an operation; given back when this goes.
  class Reservation {
   public:
    Reservation(std::atomic<uint64_t>* from, uint64_t bytes) : from_(from), bytes_(bytes) {}
    Reservation(Reservation&& o) noexcept : from_(std::exchange(o.from_, nullptr)), bytes_(o.bytes_) {}
    Reservation& operator=(Reservation&&) = delete;
    ~Reservation() {
      if (from_) *from_ -= bytes_;
    }

   private:
    std::atomic<uint64_t>* from_;
    uint64_t bytes_;
  };

  Admission(const std::string& state_dir, const AdmissionLimits& limits) : state_dir_(state_dir), limits_(limits) {}

  // Errors: kNoSpace.
  Status check_disk(uint64_t bytes) const;
  // Errors: kNoMemory, kNoSpace.
  Result<Reservation> reserve(uint64_t memory_bytes, uint64_t disk_bytes);
  // Room in a family that uses `used_bytes` for `children` copies of `parent`.   Errors: kNoMemory.
  static Status check_family(pid_t parent, uint32_t children, uint64_t used_bytes, uint64_t memory_max_bytes);

  uint64_t reserved_bytes() const { return reserved_; }

 private:
  const std::string state_dir_;
  const AdmissionLimits limits_;
  std::atomic<uint64_t> reserved_{0};
};

struct MemoryInfo {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;
};
MemoryInfo read_memory_info();
// Free bytes for us on the file system of `path`.
uint64_t free_disk_bytes(const std::string& path);
// RssAnon of a process, from counters (no page table walk); 0 when it is gone.
uint64_t anonymous_bytes(pid_t pid);

// What a machine costs at least beyond its pages: process, page tables, KVM.
inline constexpr uint64_t kMachineOverheadBytes = 8u << 20;
// What a guest uses of its RAM at the least to boot: the kernel's descriptors of all its pages (64 bytes for 4 KiB), and 64
// MiB.
constexpr uint64_t boot_bytes(uint64_t ram_bytes) { return ram_bytes / 64 + (64u << 20); }
// Page tables of both sides, slab and page cache under writeback that grow while the parent rewrites.
inline constexpr uint64_t kFamilySlackBytes = 32u << 20;

}  // namespace ramet::host
