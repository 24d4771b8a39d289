#include "vmm/devices/balloon/request.h"

#include <algorithm>

#include "base/checked.h"
#include "base/endian.h"

namespace ramet::vmm {

void listed_pages(const DescriptorChain& chain, const GuestMemory& memory, std::vector<PageRange>& out) {
  const size_t count = std::min<uint64_t>(chain.readable_bytes() / sizeof(le32), kMaxPagesPerChain);
  std::vector<le32> wire(count);
  if (!chain.read(memory, 0, std::as_writable_bytes(std::span(wire)))) return;
  std::vector<uint32_t> numbers(wire.begin(), wire.end());
  std::sort(numbers.begin(), numbers.end());
  const size_t first = out.size();
  for (const uint32_t number : numbers) {
    const uint64_t start = number * kBalloonPageBytes;
    if (out.size() > first) {
      PageRange& last = out.back();
      if (start < last.start.value + last.bytes) continue;  // named twice
      if (start == last.start.value + last.bytes) {
        last.bytes += kBalloonPageBytes;
        continue;
      }
    }
    out.push_back({{start}, kBalloonPageBytes});
  }
}

void reported_pages(const DescriptorChain& chain, std::vector<PageRange>& out) {
  const std::span<const Segment> parts = chain.writable();
  for (const Segment& s : parts.first(std::min(parts.size(), kMaxRangesPerChain))) {
    // The queue has checked that the part is RAM, so the sums cannot wrap.
    const uint64_t start = *align_up(s.address.value, kBalloonPageBytes);
    const uint64_t end = align_down(s.address.value + s.length, kBalloonPageBytes);
    if (start < end) out.push_back({{start}, end - start});
  }
}

}  // namespace ramet::vmm
