// vmm/devices/driver_fake.h - the guest's side of a virtio device for unit tests and fuzz targets: drives a real MmioTransport
// through its registers and keeps split rings in a RAM of its own, kicking only when the device asked for it (event indexes).
// Not here: packets and requests of a device; anything the monitor itself uses. Thread: one, beside the device's own.
#pragma once

#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>
#define VIRTIO_RING_NO_LEGACY
#include <linux/virtio_ring.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "vmm/virtio/mmio.h"

namespace ramet::vmm {

class DriverFake {
 public:
  static constexpr uint64_t kRamBytes = 16ull << 20;
  static constexpr uint16_t kRingSize = 16;

  struct Buffer {
    GuestAddr address;
    uint32_t length = 0;
    bool device_writes = false;
  };
  struct Used {
    uint16_t head = 0;
    uint32_t written = 0;
  };

  explicit DriverFake(VirtioDevice& device, uint64_t ram_bytes = kRamBytes)
      : ram_(ram_bytes), memory_(ram_.data(), ram_bytes), transport_(memory_, device, [this] { interrupts_++; }) {}

  GuestMemory& memory() { return memory_; }
  MmioTransport& transport() { return transport_; }
  int interrupts() const { return interrupts_; }
  std::byte* ram() { return ram_.data(); }

  // Negotiates and goes to DRIVER_OK with kRingSize entries in each of the first `queues` queues.
  void start(uint16_t queues, uint64_t extra_features = (1ull << VIRTIO_RING_F_EVENT_IDX)) {
    features_ = (1ull << VIRTIO_F_VERSION_1) | extra_features;
    write(VIRTIO_MMIO_STATUS, 0);
    write(VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER);
    for (uint32_t half = 0; half < 2; half++) {
      write(VIRTIO_MMIO_DRIVER_FEATURES_SEL, half);
      write(VIRTIO_MMIO_DRIVER_FEATURES, static_cast<uint32_t>(features_ >> (32 * half)));
    }
    write(VIRTIO_MMIO_STATUS, read(VIRTIO_MMIO_STATUS) | VIRTIO_CONFIG_S_FEATURES_OK);
    rings_.assign(queues, {});
    next_free_ = 4096;
    for (uint16_t q = 0; q < queues; q++) start_queue(q);
    write(VIRTIO_MMIO_STATUS, read(VIRTIO_MMIO_STATUS) | VIRTIO_CONFIG_S_DRIVER_OK);
  }
  void reset() { write(VIRTIO_MMIO_STATUS, 0); }
  bool needs_reset() { return read(VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_NEEDS_RESET; }

  // Fresh, zeroed guest memory.
  GuestAddr allocate(uint32_t bytes) {
    const uint64_t at = *align_up(next_free_, 16);
    next_free_ = at + bytes;
    if (next_free_ > ram_.size()) abort();
    std::fill_n(ram_.begin() + static_cast<ptrdiff_t>(at), bytes, std::byte{0});
    return {at};
  }

  // Makes a chain available; nullopt when the ring is full. Does not kick.
  std::optional<uint16_t> add(uint16_t q, std::span<const Buffer> buffers) {
    Ring& ring = rings_[q];
    if (ring.free.size() < buffers.size()) return std::nullopt;
    std::vector<uint16_t> taken;
    for (size_t i = 0; i < buffers.size(); i++) {
      taken.push_back(ring.free.back());
      ring.free.pop_back();
    }
    for (size_t i = 0; i < buffers.size(); i++) {
      const bool last = i + 1 == buffers.size();
      const vring_desc d{
          buffers[i].address.value, buffers[i].length,
          static_cast<uint16_t>((buffers[i].device_writes ? VRING_DESC_F_WRITE : 0) | (last ? 0 : VRING_DESC_F_NEXT)),
          static_cast<uint16_t>(last ? 0 : taken[i + 1])};
      store({ring.layout.descriptors.value + 16ull * taken[i]}, d);
    }
    ring.chains[taken[0]] = taken;
    store<uint16_t>({ring.layout.available.value + 4 + 2ull * (ring.available % kRingSize)}, taken[0]);
    ring.available++;
    publish({ring.layout.available.value + 2}, ring.available);
    return taken[0];
  }

  // Tells the device about what was added since the last kick, if it asked to be told.
  void kick(uint16_t q) {
    Ring& ring = rings_[q];
    const uint16_t old = ring.kicked;
    ring.kicked = ring.available;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const uint16_t event = observe({ring.layout.used.value + 4 + 8ull * kRingSize});
    const bool wanted = !(features_ & (1ull << VIRTIO_RING_F_EVENT_IDX)) || vring_need_event(event, ring.available, old);
    if (wanted && old != ring.available) notify(q);
  }
  void notify(uint16_t q) { write(VIRTIO_MMIO_QUEUE_NOTIFY, q); }

  std::optional<Used> take_used(uint16_t q) {
    Ring& ring = rings_[q];
    if (observe({ring.layout.used.value + 2}) == ring.used) return std::nullopt;
    const vring_used_elem e = load<vring_used_elem>({ring.layout.used.value + 4 + 8ull * (ring.used % kRingSize)});
    ring.used++;
    publish({ring.layout.available.value + 4 + 2ull * kRingSize}, ring.used);  // used_event: interrupt for the next one
    if (e.id < ring.chains.size()) {  // else a guest had the device write over its rings
      const std::vector<uint16_t> chain = std::exchange(ring.chains[e.id], {});
      ring.free.insert(ring.free.end(), chain.begin(), chain.end());
    }
    return Used{static_cast<uint16_t>(e.id), e.len};
  }

  template <class T>
  void store(GuestAddr a, const T& value) {
    if (!memory_.write_object(a, value)) abort();
  }
  template <class T>
  T load(GuestAddr a) {
    T value;
    if (!memory_.read_object(a, value)) abort();
    return value;
  }
  std::string bytes_at(GuestAddr a, size_t n) { return std::string(reinterpret_cast<const char*>(memory_.resolve(a, n)), n); }
  void put_bytes(GuestAddr a, std::string_view bytes) {
    if (!bytes.empty() && !memory_.write(a, std::as_bytes(std::span(bytes)))) abort();
  }

  uint32_t read(uint64_t offset) {
    uint32_t value = 0;
    transport_.bus_read(offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  void write(uint64_t offset, uint32_t value) { transport_.bus_write(offset, std::as_bytes(std::span(&value, 1))); }
  const QueueLayout& layout(uint16_t q) const { return rings_[q].layout; }

 private:
  // Words that both sides use at once.
  void publish(GuestAddr a, uint16_t value) {
    if (!memory_.store_release(a, value)) abort();
  }
  uint16_t observe(GuestAddr a) {
    uint16_t value = 0;
    if (!memory_.load_acquire(a, value)) abort();
    return value;
  }

  struct Ring {
    QueueLayout layout;
    std::vector<uint16_t> free;
    std::vector<std::vector<uint16_t>> chains;
    uint16_t available = 0, kicked = 0, used = 0;
  };

  void start_queue(uint16_t q) {
    Ring& ring = rings_[q];
    ring.layout = {kRingSize, allocate(16 * kRingSize), allocate(6 + 2 * kRingSize), allocate(6 + 8 * kRingSize)};
    ring.chains.resize(kRingSize);
    for (uint16_t i = 0; i < kRingSize; i++) ring.free.push_back(static_cast<uint16_t>(kRingSize - 1 - i));
    write(VIRTIO_MMIO_QUEUE_SEL, q);
    write(VIRTIO_MMIO_QUEUE_NUM, kRingSize);
    const auto address = [this](uint64_t low, GuestAddr a) {
      write(low, static_cast<uint32_t>(a.value));
      write(low + 4, static_cast<uint32_t>(a.value >> 32));
    };
    address(VIRTIO_MMIO_QUEUE_DESC_LOW, ring.layout.descriptors);
    address(VIRTIO_MMIO_QUEUE_AVAIL_LOW, ring.layout.available);
    address(VIRTIO_MMIO_QUEUE_USED_LOW, ring.layout.used);
    write(VIRTIO_MMIO_QUEUE_READY, 1);
  }

  std::vector<std::byte> ram_;
  GuestMemory memory_;
  std::atomic<int> interrupts_ = 0;
  MmioTransport transport_;
  uint64_t features_ = 0;
  uint64_t next_free_ = 4096;
  std::vector<Ring> rings_;
};

}  // namespace ramet::vmm
