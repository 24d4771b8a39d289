// vmm/virtio/mmio.h - the virtio-mmio transport, version 2 (virtio 1.2, section 4.2): registers, status machine, feature
// negotiation and queues of one VirtioDevice, and the mutex that guards all of it. Not here: what requests mean (devices/),
// where the registers lie and which interrupt line is used (the composition in vmm/).
//
//   (reset) -ACKNOWLEDGE-> -DRIVER-> -FEATURES_OK-> negotiated -DRIVER_OK-> active --broken queue--> NEEDS_RESET (active)
//      ^                                 \-> refused: FEATURES_OK stays 0                                   |
//      '------------------------------------ write 0 to Status, from anywhere <----------------------------'
//
// Thread: every method locks mutex() itself, except where it says otherwise. Lock order: device mutex, then the interrupt
// controller's. `interrupt` is called with the device mutex held.
// Fork: quiesce() on the parent, fork(2), then resume() on the parent and after_fork(), resume() on the child.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vmm/bus.h"
#include "vmm/memory/guest_memory.h"
#include "vmm/virtio/device.h"
#include "vmm/virtio/queue.h"

namespace ramet::vmm {

class VirtioTransportState;
class VirtioQueueState;

class MmioTransport final : public BusDevice {
 public:
  static constexpr uint64_t kRegisterBytes = 0x200;  // 0x100 of registers, then the device's configuration space

  // Requires: memory and device outlive it; the device needs no transport any more then. `interrupt` raises the line once
  // (edge).
  MmioTransport(const GuestMemory& memory, VirtioDevice& device, std::function<void()> interrupt);
  ~MmioTransport() override;

  void bus_read(uint64_t offset, std::span<std::byte> data) override;
  void bus_write(uint64_t offset, std::span<const std::byte> data) override;

  // Stops the device and waits for its work in flight.   Errors: kTimeout; resume() is needed then, too.
  Status quiesce(Deadline deadline);
  // Undoes quiesce (or begins after restore): kicks all queues and raises the line again when an interrupt is pending.
  void resume();

  // Requires: quiesced.
  std::string save() const;
  // Requires: fresh from the constructor.   Errors: kCorrupt.
  Status restore(std::string_view state);

  // In a forked child, single-threaded, before anything else of this object.
  void after_fork();

  VirtioDevice& device() const { return device_; }
  std::mutex& mutex() const { return mutex_; }

 private:
  struct PendingLayout {  // queue registers before QueueReady
    uint16_t size = 0;
    uint64_t descriptors = 0, available = 0, used = 0;
  };
  uint32_t read_register(uint64_t offset) const;
  void write_register(uint64_t offset, uint32_t value);
  void write_status(uint32_t value);
  void write_driver_features(uint32_t value);
  void write_queue_register(uint64_t offset, uint32_t value);
  void write_queue_ready(uint32_t value);
  void reset_device();
  void activate_device();
  void raise(uint32_t bit);
  bool selected() const { return queue_select_ < queues_.size(); }
  uint64_t offered() const;
  Status restore_queue(size_t index, const VirtioQueueState& state);

  const GuestMemory& memory_;
  VirtioDevice& device_;
  const std::function<void()> interrupt_;
  const std::vector<uint16_t> max_sizes_;

  mutable std::mutex mutex_;  // guards all below and the device
  std::vector<Queue> queues_;
  std::vector<PendingLayout> pending_;
  uint32_t status_ = 0;
  uint32_t interrupt_status_ = 0;
  uint64_t driver_features_ = 0;
  uint32_t device_features_select_ = 0;
  uint32_t driver_features_select_ = 0;
  uint32_t queue_select_ = 0;
  uint32_t config_generation_ = 0;
  bool active_ = false;
  bool quiesced_ = false;  // kicks that come now are repeated by resume()
};

}  // namespace ramet::vmm
