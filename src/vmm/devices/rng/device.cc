#include "vmm/devices/rng/device.h"

#include <linux/virtio_ids.h>

#include <algorithm>

#include "vmm/devices/rng/request.h"

namespace ramet::vmm {

uint32_t RngDevice::device_id() const { return VIRTIO_ID_RNG; }

void RngDevice::read_config(uint64_t, std::span<std::byte> out) const { std::fill(out.begin(), out.end(), std::byte{0}); }

void RngDevice::queue_notify(uint16_t index) {
  if (index != 0 || context_.queues.empty()) return;
  Queue& queue = context_.queues[0];
  for (int budget = kQueueSize; budget > 0 && queue.pop(chain_) == Queue::Pop::kChain; budget--) {
    const uint32_t written = fill_with_randomness(chain_, *context_.memory);
    queue.push_used(chain_.head(), written);
    metrics_.requests++;
    metrics_.bytes += written;
  }
  if (queue.needs_interrupt()) context_.raise_used();
}

}  // namespace ramet::vmm
