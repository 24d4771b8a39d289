#include "vmm/devices/rng/request.h"

#include <sys/random.h>

#include <algorithm>
#include <array>

namespace ramet::vmm {

uint32_t fill_with_randomness(const DescriptorChain& chain, const GuestMemory& memory) {
  std::array<std::byte, kMaxRandomBytesPerRequest> bytes;
  const size_t wanted = std::min<uint64_t>(chain.writable_bytes(), bytes.size());
  // The host's generator was seeded long ago, so this neither blocks nor comes up short, except up to 256 bytes for a signal.
  const ssize_t n = ::getrandom(bytes.data(), wanted, GRND_NONBLOCK);
  if (n <= 0) return 0;
  if (!chain.write(memory, 0, std::span(bytes).first(static_cast<size_t>(n)))) return 0;
  return static_cast<uint32_t>(n);
}

}  // namespace ramet::vmm
