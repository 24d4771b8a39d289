// tests/guests/lib/virtio.h - the least driver of a virtio-mmio device (version 2), polled, without interrupts.
// Not here: what requests mean. One queue memory per object; everything is one-to-one mapped, so addresses are pointers.
#pragma once

#include "guest.h"

namespace ramet::guests {

// Registers (virtio 1.2, section 4.2.2).
enum MmioRegister : uint32_t {
  kMagicValue = 0x00,
  kDeviceId = 0x08,
  kDriverFeatures = 0x20,
  kDriverFeaturesSel = 0x24,
  kQueueSel = 0x30,
  kQueueNumMax = 0x34,
  kQueueNum = 0x38,
  kQueueReady = 0x44,
  kQueueNotify = 0x50,
  kStatus = 0x70,
  kQueueDescLow = 0x80,
  kQueueDriverLow = 0x90,
  kQueueDeviceLow = 0xa0,
};
enum DeviceStatus : uint32_t { kAcknowledge = 1, kDriver = 2, kDriverOk = 4, kFeaturesOk = 8, kNeedsReset = 64 };

inline constexpr uint64_t kVirtioBase = 0xd0000000;  // src/vmm/layout.h
inline constexpr uint64_t kVirtioWindow = 0x1000;
enum VirtioSlot : uint32_t { kBlockSlot = 0, kVsockSlot, kRngSlot, kBalloonSlot, kVirtioSlots };

enum DescriptorFlags : uint16_t { kNext = 1, kDeviceWrites = 2, kIndirect = 4 };

struct Descriptor {
  uint64_t address;
  uint32_t length;
  uint16_t flags;
  uint16_t next;
};

inline constexpr uint16_t kQueueSize = 8;

struct QueueMemory {
  struct alignas(2) Available {
    uint16_t flags, index, ring[kQueueSize], used_event;
  };
  struct UsedElement {
    uint32_t id, length;
  };
  struct alignas(4) Used {
    uint16_t flags, index;
    UsedElement ring[kQueueSize];
    uint16_t available_event;
  };
  alignas(16) volatile Descriptor descriptors[kQueueSize];
  volatile Available available;
  volatile Used used;
};

class MmioDevice {
 public:
  explicit MmioDevice(uint32_t slot) : base_(kVirtioBase + slot * kVirtioWindow) {}

  uint32_t read(uint32_t reg) const { return *reinterpret_cast<volatile uint32_t*>(base_ + reg); }
  void write(uint32_t reg, uint32_t value) const { *reinterpret_cast<volatile uint32_t*>(base_ + reg) = value; }
  void write64(uint32_t reg_low, uint64_t value) const {
    write(reg_low, static_cast<uint32_t>(value));
    write(reg_low + 4, static_cast<uint32_t>(value >> 32));
  }

  bool present() const { return read(kMagicValue) == 0x74726976 && read(kDeviceId) != 0; }
  void reset() const { write(kStatus, 0); }

  // Up to FEATURES_OK, with VERSION_1 alone.
  bool negotiate() const {
    reset();
    write(kStatus, kAcknowledge);
    write(kStatus, kAcknowledge | kDriver);
    write(kDriverFeaturesSel, 0);
    write(kDriverFeatures, 0);
    write(kDriverFeaturesSel, 1);
    write(kDriverFeatures, 1);
    write(kStatus, kAcknowledge | kDriver | kFeaturesOk);
    return (read(kStatus) & kFeaturesOk) != 0;
  }
  void set_queue(uint32_t queue, uint32_t size, uint64_t descriptors, uint64_t available, uint64_t used) const {
    write(kQueueSel, queue);
    write(kQueueNum, size);
    write64(kQueueDescLow, descriptors);
    write64(kQueueDriverLow, available);
    write64(kQueueDeviceLow, used);
    write(kQueueReady, 1);
  }
  void set_queue(uint32_t queue, QueueMemory& memory) const {
    clear(memory);
    set_queue(queue, kQueueSize, reinterpret_cast<uint64_t>(memory.descriptors), reinterpret_cast<uint64_t>(&memory.available),
              reinterpret_cast<uint64_t>(&memory.used));
  }
  void start() const { write(kStatus, kAcknowledge | kDriver | kFeaturesOk | kDriverOk); }

  static void clear(QueueMemory& memory) {
    volatile uint8_t* bytes = reinterpret_cast<volatile uint8_t*>(&memory);
    for (uint32_t i = 0; i < sizeof memory; i++) bytes[i] = 0;
  }
  static void set(QueueMemory& memory, uint16_t i, uint64_t address, uint32_t length, uint16_t flags, uint16_t next = 0) {
    memory.descriptors[i].address = address;
    memory.descriptors[i].length = length;
    memory.descriptors[i].flags = flags;
    memory.descriptors[i].next = next;
  }
  void offer(uint32_t queue, QueueMemory& memory, uint16_t head) const {
    memory.available.ring[memory.available.index % kQueueSize] = head;
    memory.available.index = static_cast<uint16_t>(memory.available.index + 1);
    write(kQueueNotify, queue);
  }
  // Whether the device has used everything offered, waiting a bounded number of looks.
  static bool wait_used(const QueueMemory& memory, uint32_t looks) {
    for (; looks > 0; looks--) {
      if (memory.used.index == memory.available.index) return true;
      asm volatile("pause");
    }
    return false;
  }

 private:
  uint64_t base_;
};

// virtio-blk requests (virtio 1.2, section 5.2.6), one at a time.
enum BlockType : uint32_t { kBlockIn = 0, kBlockOut = 1, kBlockFlush = 4, kBlockDiscard = 11, kBlockWriteZeroes = 13 };
inline constexpr uint32_t kSectorsPerBlock = 8;
inline constexpr uint32_t kBlockBytes = 4096;

class BlockDriver {
 public:
  // Looks for an answer so many times.
  explicit BlockDriver(uint32_t looks = 10'000'000) : device_(kBlockSlot), looks_(looks) {}

  bool start() {
    if (!device_.present() || !device_.negotiate()) return false;
    device_.set_queue(0, queue_);
    device_.start();
    return (device_.read(kStatus) & kNeedsReset) == 0;
  }
  // The data buffer of read and write.
  volatile uint64_t* buffer() { return buffer_; }
  bool read(uint64_t block) { return request(kBlockIn, block, kDeviceWrites, kBlockBytes); }
  bool write(uint64_t block) { return request(kBlockOut, block, 0, kBlockBytes); }
  bool flush() { return request(kBlockFlush, 0, 0, 0); }
  bool request(uint32_t type, uint64_t block, uint16_t data_flags, uint32_t data_bytes) {
    header_.type = type;
    header_.sector = block * kSectorsPerBlock;
    status_ = 0xff;
    const uint16_t status_at = data_bytes == 0 ? 1 : 2;
    MmioDevice::set(queue_, 0, reinterpret_cast<uint64_t>(&header_), sizeof header_, kNext, 1);
    if (data_bytes != 0)
      MmioDevice::set(queue_, 1, reinterpret_cast<uint64_t>(buffer_), data_bytes, static_cast<uint16_t>(data_flags | kNext), 2);
    MmioDevice::set(queue_, status_at, reinterpret_cast<uint64_t>(&status_), 1, kDeviceWrites);
    device_.offer(0, queue_, 0);
    return MmioDevice::wait_used(queue_, looks_) && status_ == 0;
  }

 private:
  MmioDevice device_;
  const uint32_t looks_;
  QueueMemory queue_;
  struct Header {
    uint32_t type, reserved;
    uint64_t sector;
  };
  volatile struct Header header_ = {};
  volatile uint8_t status_ = 0xff;
  alignas(4096) volatile uint64_t buffer_[kBlockBytes / 8];
};

}  // namespace ramet::guests
