// vmm/devices/rng/device.h - the virtio entropy device: getrandom(2) of the host into the guest's buffers. No state, so fork,
// save and restore need nothing. It is not what makes the branches of a fork differ: that is the generation id and the agent
// (DESIGN 4).
//
// Threads: the vCPU's thread, inside queue_notify with the device mutex held. A kick is served with at most one round of the
// queue; a driver that adds more meanwhile, without a kick of its own, is served at its next kick.
#pragma once

#include "vmm/devices/rng/metrics.h"
#include "vmm/virtio/device.h"
#include "vmm/virtio/queue.h"

namespace ramet::vmm {

class RngDevice final : public VirtioDevice {
 public:
  static constexpr uint16_t kQueueSize = 16;

  uint32_t device_id() const override;
  uint64_t offered_features() const override { return 0; }
  std::vector<uint16_t> queue_sizes() const override { return {kQueueSize}; }
  void read_config(uint64_t, std::span<std::byte> out) const override;
  void write_config(uint64_t, std::span<const std::byte>) override {}
  void activate(const DeviceContext& context) override { context_ = context; }
  void queue_notify(uint16_t queue) override;
  void reset() override { context_ = {}; }
  void after_fork() override { metrics_ = {}; }

  // Thread: device mutex held.
  const RngMetrics& metrics() const { return metrics_; }

 private:
  DeviceContext context_;
  DescriptorChain chain_;
  RngMetrics metrics_;
};

}  // namespace ramet::vmm
