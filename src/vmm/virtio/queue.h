// vmm/virtio/queue.h - one split virtqueue (virtio 1.2, section 2.7) seen from the device: takes descriptor chains out of the
// available ring and puts them into the used ring. Indirect descriptors and event indexes work when they were negotiated.
// Not here: registers (mmio.h), what a chain means (devices).
//
// The guest writes rings and descriptors at any time: every descriptor is copied once, then checked, then used. What breaks a
// rule (index or length out of range, loop, memory that is not RAM, a readable part after a writable one) makes the queue
// *broken*: it gives out no more chains, and the transport shows DEVICE_NEEDS_RESET until the driver resets the device.
//
// Thread: all calls with the device's mutex held. Owner: the transport. A value for the transport only (fork copies it as
// memory).
#pragma once

#include <linux/virtio_config.h>
#define VIRTIO_RING_NO_LEGACY
#include <linux/virtio_ring.h>
#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "vmm/memory/guest_memory.h"

namespace ramet::vmm {

// One checked piece of guest RAM.
struct Segment {
  GuestAddr address;
  uint32_t length = 0;
};

// The copied descriptors of one request. Zero-length descriptors are left out. Reusable: pop() clears it first.
class DescriptorChain {
 public:
  uint16_t head() const { return head_; }
  std::span<const Segment> readable() const { return readable_; }
  std::span<const Segment> writable() const { return writable_; }
  uint64_t readable_bytes() const { return readable_bytes_; }
  uint64_t writable_bytes() const { return writable_bytes_; }

  // Copies out.size() bytes from the readable part, which begins with byte 0. False: it is shorter than that.
  [[nodiscard]] bool read(const GuestMemory& memory, uint64_t offset, std::span<std::byte> out) const;
  // Copies into the writable part, likewise.
  [[nodiscard]] bool write(const GuestMemory& memory, uint64_t offset, std::span<const std::byte> in) const;
  // Appends the host memory of [offset, offset + length) of a part, for bulk I/O. False: the part is shorter than that.
  [[nodiscard]] bool readable_iovecs(const GuestMemory& memory, uint64_t offset, uint64_t length,
                                     std::vector<iovec>& out) const;
  [[nodiscard]] bool writable_iovecs(const GuestMemory& memory, uint64_t offset, uint64_t length,
                                     std::vector<iovec>& out) const;

 private:
  friend class Queue;
  void clear(uint16_t head);
  uint16_t head_ = 0;
  std::vector<Segment> readable_, writable_;
  uint64_t readable_bytes_ = 0, writable_bytes_ = 0;
};

// What the driver configured.
struct QueueLayout {
  uint16_t size = 0;  // power of two
  GuestAddr descriptors, available, used;
};

// Positions, for save and restore.
struct QueuePosition {
  uint16_t next_available = 0;  // taken from the available ring so far
  uint16_t next_used = 0;       // put into the used ring so far
  uint16_t in_flight = 0;       // chains the device holds
};

class Queue {
 public:
  enum class Pop { kChain, kEmpty, kBroken };

  // A descriptor table in a chain may be this long, whatever the queue's size (Linux does not keep to the size there).
  static constexpr uint32_t kMaxIndirectDescriptors = 1024;

  Queue(const GuestMemory& memory, std::function<void()> on_broken) : memory_(&memory), on_broken_(std::move(on_broken)) {}

  // Begins at the given position.   Errors: kInvalid (size, alignment, not RAM); the queue is then not ready.
  Status enable(const QueueLayout& layout, uint64_t features, const QueuePosition& position);
  void disable();
  bool ready() const { return ready_; }
  bool broken() const { return broken_; }
  uint16_t size() const { return layout_.size; }
  const QueueLayout& layout() const { return layout_; }
  QueuePosition position() const { return {next_available_, next_used_, in_flight_}; }

  // Takes the next chain. kEmpty also asks the driver for a kick at the next one. A queue that is not ready is empty.
  Pop pop(DescriptorChain& chain);
  // Gives the chain popped last back; it is the next one again.   Requires: no other pop since.
  void undo_pop();
  // The driver's available index; it will kick when it adds the next chain, even while others wait. nullopt: not ready or
  // broken.
  std::optional<uint16_t> watch_available();
  // Copies the chain of a head that was popped before (a request kept over a fork or a save). False: it is invalid; queue
  // broken.
  [[nodiscard]] bool reload(uint16_t head, DescriptorChain& chain);

  // Gives a chain back to the driver; `written` is the number of bytes put into its writable part. Ignored unless ready.
  void push_used(uint16_t head, uint32_t written);
  // Whether the driver wants an interrupt for what was pushed since the last call that said so.
  [[nodiscard]] bool needs_interrupt();

  void mark_broken();

 private:
  bool walk(uint16_t head, DescriptorChain& chain) const;
  bool load_available_index(uint16_t& out) const { return memory_->load_acquire({layout_.available.value + 2}, out); }

  const GuestMemory* memory_;
  std::function<void()> on_broken_;
  QueueLayout layout_;
  bool ready_ = false;
  bool broken_ = false;
  bool event_index_ = false;      // VIRTIO_RING_F_EVENT_IDX
  bool indirect_ = false;         // VIRTIO_RING_F_INDIRECT_DESC
  bool signalled_valid_ = false;  // false: the next needs_interrupt() says yes
  uint16_t next_available_ = 0;
  uint16_t next_used_ = 0;
  uint16_t signalled_used_ = 0;  // next_used_ when the driver was last interrupted or did not want it
  uint16_t in_flight_ = 0;
};

}  // namespace ramet::vmm
