#include "vmm/devices/balloon/device.h"

#include <linux/virtio_balloon.h>

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/endian.h"

namespace ramet::vmm {
namespace {

// Section 5.5.2 gives reporting number 4; Linux numbers only the queues whose features were negotiated, which makes it 2.
// Nothing else that could use 2 to 4 is offered, so all three mean reporting.
enum : uint16_t { kInflateQueue = 0, kDeflateQueue = 1, kQueues = 5 };

struct WireConfig {
  le32 num_pages, actual, free_page_hint_cmd_id, poison_val;
};
static_assert(sizeof(WireConfig) == sizeof(virtio_balloon_config));

}  // namespace

uint32_t BalloonDevice::device_id() const { return VIRTIO_ID_BALLOON; }

uint64_t BalloonDevice::offered_features() const { return 1ull << VIRTIO_BALLOON_F_REPORTING; }

std::vector<uint16_t> BalloonDevice::queue_sizes() const { return std::vector<uint16_t>(kQueues, kQueueSize); }

void BalloonDevice::set_target(uint32_t pages) {
  const std::lock_guard lock(*mutex_);
  state_.target_pages = pages;
  if (context_.raise_config) context_.raise_config();
}

BalloonMetrics BalloonDevice::metrics() const {
  const std::lock_guard lock(*mutex_);
  return metrics_;
}

uint32_t BalloonDevice::actual_pages() const {
  const std::lock_guard lock(*mutex_);
  return state_.actual_pages;
}

void BalloonDevice::read_config(uint64_t offset, std::span<std::byte> out) const {
  WireConfig config;
  config.num_pages = state_.target_pages;
  config.actual = state_.actual_pages;
  std::fill(out.begin(), out.end(), std::byte{0});
  if (offset < sizeof config)
    std::memcpy(out.data(), reinterpret_cast<const char*>(&config) + offset,
                std::min<size_t>(out.size(), sizeof config - offset));
}

void BalloonDevice::write_config(uint64_t offset, std::span<const std::byte> in) {
  le32 actual;
  if (offset != offsetof(virtio_balloon_config, actual) || in.size() != sizeof actual) return;
  std::memcpy(&actual, in.data(), sizeof actual);
  state_.actual_pages = actual;
}

void BalloonDevice::queue_notify(uint16_t index) {
  if (index >= context_.queues.size()) return;
  Queue& queue = context_.queues[index];
  uint64_t budget_bytes = kMaxBytesPerKick;
  for (int budget = kQueueSize; budget > 0 && queue.pop(chain_) == Queue::Pop::kChain; budget--) {
    ranges_.clear();
    if (index == kInflateQueue) {
      listed_pages(chain_, *context_.memory, ranges_);
      const uint64_t dropped = drop_ranges(budget_bytes);
      metrics_.inflated_bytes += dropped;
      budget_bytes -= dropped;
    } else if (index != kDeflateQueue) {
      reported_pages(chain_, ranges_);
      const uint64_t dropped = drop_ranges(budget_bytes);
      metrics_.reports++;
      metrics_.reported_bytes += dropped;
      budget_bytes -= dropped;
    }  // a deflated page comes back by being touched
    queue.push_used(chain_.head(), 0);
  }
  if (queue.needs_interrupt()) context_.raise_used();
}

// Bytes offered to drop_; at most the budget.
uint64_t BalloonDevice::drop_ranges(uint64_t budget_bytes) {
  uint64_t dropped = 0;
  for (const PageRange& range : ranges_) {
    const bool fits = range.bytes <= budget_bytes - dropped;
    if (fits && drop_(range.start, range.bytes)) {
      dropped += range.bytes;
    } else {
      metrics_.refused_bytes += range.bytes;
    }
  }
  return dropped;
}

void BalloonDevice::reset() {
  context_ = {};
  state_.actual_pages = 0;
}

Status BalloonDevice::restore(std::string_view bytes) {
  TRY_ASSIGN(state_, decode_balloon_state(bytes));
  return {};
}

}  // namespace ramet::vmm
