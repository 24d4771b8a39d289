// vmm/bus.h - port and MMIO dispatch. Devices register ranges before the vCPUs start; look-up takes no lock.
// Thread: add() only while single-threaded; access() from any vCPU thread. Devices lock themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace ramet::vmm {

class BusDevice {
 public:
  virtual ~BusDevice() = default;
  // data.size() is 1, 2, 4 or 8. offset is relative to the registered range.
  virtual void bus_read(uint64_t offset, std::span<std::byte> data) = 0;
  virtual void bus_write(uint64_t offset, std::span<const std::byte> data) = 0;
};

class Bus {
 public:
  // Errors: kInvalid when the range is empty, wraps or overlaps another.   Requires: device outlives the bus.
  Status add(uint64_t base, uint64_t length, BusDevice* device);
  // False when nothing is there (reads then yield all ones). An access that crosses a range's end is not there.
  bool read(uint64_t address, std::span<std::byte> data) const;
  bool write(uint64_t address, std::span<const std::byte> data) const;

 private:
  struct Range {
    uint64_t base;
    uint64_t length;
    BusDevice* device;
  };
  const Range* find(uint64_t address, uint64_t length) const;
  std::vector<Range> ranges_;  // sorted by base
};

}  // namespace ramet::vmm
