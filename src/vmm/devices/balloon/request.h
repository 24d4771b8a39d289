// vmm/devices/balloon/request.h - which pages a chain names: page numbers to put into the balloon, or ranges reported free.
// Not here: giving them back to the host. Thread: stateless. Source: virtio 1.2, sections 5.5.6 and 5.5.6.7.
#pragma once

#include <cstdint>
#include <vector>

#include "vmm/virtio/queue.h"

namespace ramet::vmm {

inline constexpr uint64_t kBalloonPageBytes = 4096;  // of the interface, whatever the guest's page size

struct PageRange {
  GuestAddr start;
  uint64_t bytes = 0;

  friend bool operator==(const PageRange&, const PageRange&) = default;
};

// More in one chain is left alone: both requests are offers, not orders. Linux sends 256 numbers and 32 ranges at a time.
inline constexpr size_t kMaxPagesPerChain = 4096;
inline constexpr size_t kMaxRangesPerChain = 256;

// Appends the pages an inflate chain lists (little-endian 32-bit page numbers), merged into ranges.
void listed_pages(const DescriptorChain& chain, const GuestMemory& memory, std::vector<PageRange>& out);
// Appends the ranges a reporting chain consists of, cut to whole pages.
void reported_pages(const DescriptorChain& chain, std::vector<PageRange>& out);

}  // namespace ramet::vmm
