#include "vmm/bus.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/checked.h"

namespace ramet::vmm {

Status Bus::add(uint64_t base, uint64_t length, BusDevice* device) {
  const std::optional<uint64_t> end = checked_add(base, length);
  if (length == 0 || !end) return fail(ErrorKind::kInvalid, "bus range at " + std::to_string(base) + " is empty or wraps");
  for (const Range& r : ranges_)
    if (base < r.base + r.length && r.base < *end)
      return fail(ErrorKind::kInvalid,
                  "bus range at " + std::to_string(base) + " overlaps the one at " + std::to_string(r.base));
  ranges_.push_back({base, length, device});
  std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.base < b.base; });
  return {};
}

const Bus::Range* Bus::find(uint64_t address, uint64_t length) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), address, [](uint64_t a, const Range& r) { return a < r.base; });
  if (after == ranges_.begin()) return nullptr;
  const Range& r = *std::prev(after);
  return range_within(address - r.base, length, r.length) ? &r : nullptr;
}

bool Bus::read(uint64_t address, std::span<std::byte> data) const {
  const Range* r = find(address, data.size());
  if (!r) {
    std::memset(data.data(), 0xff, data.size());
    return false;
  }
  r->device->bus_read(address - r->base, data);
  return true;
}

bool Bus::write(uint64_t address, std::span<const std::byte> data) const {
  const Range* r = find(address, data.size());
  if (!r) return false;
  r->device->bus_write(address - r->base, data);
  return true;
}

}  // namespace ramet::vmm
