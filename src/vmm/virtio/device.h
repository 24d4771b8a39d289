// vmm/virtio/device.h - what a virtio device type is to the rest of the monitor. The transport (mmio.h) owns queues, status and
// feature negotiation; a device knows its requests only. Not here: registers, ring layout (queue.h).
//
// Thread: every method is called with the device's own mutex held (the transport's), from a vCPU thread (register access, queue
// kick) or from the event loop thread (quiesce, resume, timers, descriptors). Devices never block in them.
//
// Lifecycle:  reset -> activate (DRIVER_OK) -> queue_notify* -> quiesce -> [save | fork] -> resume ...        reset from
// anywhere
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "vmm/memory/guest_memory.h"

namespace ramet::vmm {

class Queue;  // vmm/virtio/queue.h

// What the transport lends to an active device.
struct DeviceContext {
  const GuestMemory* memory = nullptr;
  std::span<Queue> queues;             // as many as queue_sizes(); only ready ones may be used
  uint64_t features = 0;               // negotiated
  std::function<void()> raise_used;    // used-buffer interrupt (suppression is the Queue's business)
  std::function<void()> raise_config;  // configuration-change interrupt
};

class VirtioDevice {
 public:
  virtual ~VirtioDevice() = default;

  // Called once, by the transport's constructor: the mutex that is held during every other call. A device's own threads and
  // event loop callbacks lock it before they touch the device, a queue or the context. It keeps its address over a fork.
  virtual void attach(std::mutex& device_mutex) { (void)device_mutex; }
  // Called once, by the transport's destructor, without the mutex: no thread of the device may use mutex or context afterwards.
  virtual void detach() {}

  virtual uint32_t device_id() const = 0;                 // VIRTIO_ID_*
  virtual uint64_t offered_features() const = 0;          // VIRTIO_F_VERSION_1 is added by the transport
  virtual std::vector<uint16_t> queue_sizes() const = 0;  // maximum size per queue, powers of two
  // Bytes of the configuration space; out-of-range parts read as zero.
  virtual void read_config(uint64_t offset, std::span<std::byte> out) const = 0;
  virtual void write_config(uint64_t offset, std::span<const std::byte> in) = 0;

  virtual void activate(const DeviceContext& context) = 0;  // guest set DRIVER_OK; context stays valid until reset()
  virtual void queue_notify(uint16_t queue) = 0;            // kick; also called for every queue by resume after fork or restore
  virtual void reset() = 0;                                 // drop everything; in-flight work is completed or abandoned

  // Stop taking requests and let in-flight work end.   Errors: kTimeout.
  virtual Status quiesce(Deadline) { return {}; }
  virtual void resume() {}  // undoes quiesce in the same process

  // Device state as bytes for another process (queues and status are the transport's).
  virtual std::string save() const { return {}; }
  // Errors: kCorrupt.   Called before activate() of the restored transport.
  virtual Status restore(std::string_view) { return {}; }
  // First thing in a forked child, single-threaded, before the VM exists: drop what must not be shared, fresh locks and
  // descriptors.
  virtual void after_fork() {}
};

}  // namespace ramet::vmm
