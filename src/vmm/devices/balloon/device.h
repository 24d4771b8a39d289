// vmm/devices/balloon/device.h - the virtio balloon with free page reporting: memory the guest does not use goes back to the
// host. Not here: how a page is given back; `drop` does that and decides which pages may go (only anonymous parts of RAM:
// dropping a written page of an image part would bring the image's bytes back).
//
// Offered: VIRTIO_BALLOON_F_REPORTING. Not offered: PAGE_POISON, on purpose. A Linux guest that fills free pages
// (init_on_free=1 or page poisoning) relies on what they hold and can only report when the device understands that filling;
// without PAGE_POISON it turns reporting off by itself (virtballoon_validate). So a page that arrives here is one whose
// contents nobody relies on. STATS and FREE_PAGE_HINT are not offered either.
//
// Threads: the vCPU's thread in queue_notify, with the device mutex held; set_target from any. One kick drops at most
// kMaxBytesPerKick: reports are offers, the rest is left as it is.
// Fork: pages given back are gone in the child as well; nothing to do.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "vmm/devices/balloon/metrics.h"
#include "vmm/devices/balloon/request.h"
#include "vmm/devices/balloon/state.h"
#include "vmm/virtio/device.h"
#include "vmm/virtio/queue.h"

namespace ramet::vmm {

class BalloonDevice final : public VirtioDevice {
 public:
  static constexpr uint16_t kQueueSize = 128;
  static constexpr uint64_t kMaxBytesPerKick = 1ull << 30;

  // Gives back the parts of a page-aligned range that may go. False: not RAM.
  using Drop = std::function<bool(GuestAddr, uint64_t length)>;

  explicit BalloonDevice(Drop drop) : drop_(std::move(drop)) {}

  // How many 4 KiB pages the guest is asked to put into the balloon. It may never do so.   Thread: any, device mutex not held.
  void set_target(uint32_t pages);
  // Thread: any, device mutex not held.
  BalloonMetrics metrics() const;
  uint32_t actual_pages() const;

  void attach(std::mutex& device_mutex) override { mutex_ = &device_mutex; }
  uint32_t device_id() const override;
  uint64_t offered_features() const override;
  std::vector<uint16_t> queue_sizes() const override;
  void read_config(uint64_t offset, std::span<std::byte> out) const override;
  void write_config(uint64_t offset, std::span<const std::byte> in) override;
  void activate(const DeviceContext& context) override { context_ = context; }
  void queue_notify(uint16_t queue) override;
  void reset() override;
  std::string save() const override { return encode_balloon_state(state_); }
  Status restore(std::string_view bytes) override;
  void after_fork() override { metrics_ = {}; }

 private:
  uint64_t drop_ranges(uint64_t budget_bytes);

  const Drop drop_;
  std::mutex* mutex_ = nullptr;  // the transport's; guards all below
  DeviceContext context_;
  BalloonState state_;
  BalloonMetrics metrics_;
  DescriptorChain chain_;
  std::vector<PageRange> ranges_;
};

}  // namespace ramet::vmm
