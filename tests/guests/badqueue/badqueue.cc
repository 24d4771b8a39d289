// A driver that means harm: every kind of invalid queue and descriptor chain, at every virtio device. After each attack it
// resets the device, which must answer, and at the end the block device must still do honest work. A tick per attack names it.
#include "virtio.h"

using namespace ramet::guests;

namespace {

constexpr uint64_t kNoRam = 1ull << 40;
constexpr uint64_t kHole = 0xd0000000;
constexpr uint32_t kFewLooks = 300;

QueueMemory queue;
alignas(4096) uint8_t data[8192];
alignas(16) Descriptor table[16];

uint64_t at(const volatile void* p) { return reinterpret_cast<uint64_t>(p); }

// A chain that is honest but for what the attack changes: 16 readable bytes, then 4,096 and 1 writable.
void honest_chain() {
  MmioDevice::set(queue, 0, at(data), 16, kNext, 1);
  MmioDevice::set(queue, 1, at(data + 4096), 4095, kNext | kDeviceWrites, 2);
  MmioDevice::set(queue, 2, at(data + 4095), 1, kDeviceWrites);
}

using Attack = void (*)(const MmioDevice& device, uint32_t target);

void offer_chain(const MmioDevice& device, uint32_t target) { device.offer(target, queue, 0); }

const Attack kChainAttacks[] = {
    [](const MmioDevice& d, uint32_t q) { d.offer(q, queue, kQueueSize); },  // head out of range
    [](const MmioDevice& d, uint32_t q) { d.offer(q, queue, 0xffff); },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[0].next = kQueueSize;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[0].next = 0xffff;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[1].next = 0;
      offer_chain(d, q);
    },  // loop
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[0].next = 0;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[0].address = kNoRam;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[1].address = kNoRam;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[2].address = kNoRam;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[1].address = kHole;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[1].address = 0xfffffffffffff000;
      offer_chain(d, q);
    },  // wraps
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[1].length = 0xffffffff;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[0].length = 0xffffffff;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[0].length = 0;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[0].length = 1;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[1].length = 0;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[2].length = 0;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[0].flags = kNext | kDeviceWrites;
      offer_chain(d, q);
    },  // no readable part
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[2].flags = 0;
      offer_chain(d, q);
    },  // readable after writable
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[0].flags = 0;
      offer_chain(d, q);
    },  // ends at once
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[0].flags = 0xffff;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {
      queue.descriptors[0].flags = kIndirect;
      offer_chain(d, q);
    },  // not negotiated
    [](const MmioDevice& d, uint32_t q) {
      queue.available.index = 0x8000;
      d.write(kQueueNotify, q);
    },  // index jumps
    [](const MmioDevice& d, uint32_t q) {
      queue.available.index = kQueueSize + 1;
      d.write(kQueueNotify, q);
    },
    [](const MmioDevice& d, uint32_t q) {  // indirect table inside an indirect table, and of odd length
      for (Descriptor& entry : table) entry = Descriptor{at(table), sizeof table, kIndirect, 0};
      MmioDevice::set(queue, 0, at(table), sizeof table - 1, kIndirect);
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {  // the device is asked to write its answer over its own queue
      MmioDevice::set(queue, 1, at(&queue), sizeof queue, kNext | kDeviceWrites, 2);
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {  // garbage for a request
      for (uint8_t& byte : data) byte = 0xee;
      offer_chain(d, q);
    },
    [](const MmioDevice& d, uint32_t q) {  // the whole ring is one chain
      for (uint16_t i = 0; i < kQueueSize; i++) MmioDevice::set(queue, i, at(data), 512, i + 1 < kQueueSize ? kNext : 0, i + 1);
      offer_chain(d, q);
    },
};

// Queues that cannot work: size, descriptors, available, used.
struct Layout {
  uint32_t size;
  uint64_t descriptors, available, used;
};

const Layout kLayouts[] = {
    {0, at(&queue), at(&queue.available), at(&queue.used)},
    {3, at(&queue), at(&queue.available), at(&queue.used)},
    {0x8000, at(&queue), at(&queue.available), at(&queue.used)},
    {0xffffffff, at(&queue), at(&queue.available), at(&queue.used)},
    {kQueueSize, kNoRam, at(&queue.available), at(&queue.used)},
    {kQueueSize, at(&queue), kNoRam, at(&queue.used)},
    {kQueueSize, at(&queue), at(&queue.available), kNoRam},
    {kQueueSize, kHole, kHole, kHole},
    {kQueueSize, 0xfffffffffffffff0, at(&queue.available), at(&queue.used)},
    {kQueueSize, at(&queue) + 1, at(&queue.available) + 1, at(&queue.used) + 1},
    {kQueueSize, at(&queue), at(&queue), at(&queue)},
};

uint32_t attacks = 0;

// The device must come back from a reset, whatever was done to it.
bool survives(const MmioDevice& device) {
  report(kTick, ++attacks);
  device.reset();
  return device.read(kStatus) == 0 && device.present();
}

bool attack_chains(const MmioDevice& device, uint32_t target) {
  for (Attack attack : kChainAttacks) {
    if (!device.negotiate()) return false;
    device.set_queue(target, queue);
    device.start();
    honest_chain();
    attack(device, target);
    MmioDevice::wait_used(queue, kFewLooks);
    if (!survives(device)) return false;
  }
  return true;
}

bool attack_layouts(const MmioDevice& device, uint32_t target) {
  for (const Layout& layout : kLayouts) {
    if (!device.negotiate()) return false;
    MmioDevice::clear(queue);
    device.set_queue(target, layout.size, layout.descriptors, layout.available, layout.used);
    device.start();
    honest_chain();
    queue.available.index = 1;
    device.write(kQueueNotify, target);
    MmioDevice::wait_used(queue, kFewLooks);
    if (!survives(device)) return false;
  }
  return true;
}

bool attack_registers(const MmioDevice& device) {
  for (uint32_t reg = 0; reg < 0x200; reg += 4) device.write(reg, 0xffffffff);
  if (!survives(device)) return false;
  for (uint32_t reg = 1; reg < 0x200; reg += 5) {  // unaligned and narrow
    *reinterpret_cast<volatile uint8_t*>(kVirtioBase + reg) = 0xff;
    *reinterpret_cast<volatile uint16_t*>(kVirtioBase + reg) = 0xffff;
  }
  device.write(kQueueNotify, 0);  // kick without a driver
  device.write(kQueueNotify, 0xffff);
  return survives(device);
}

bool attack_device(uint32_t slot) {
  const MmioDevice device(slot);
  constexpr uint32_t kMaxQueues = 4;
  if (!device.present()) return true;
  if (!attack_registers(device)) return false;
  for (uint32_t target = 0; target < kMaxQueues; target++)
    if (!attack_chains(device, target) || !attack_layouts(device, target)) return false;
  return true;
}

BlockDriver disk;

bool disk_still_works() {
  if (!disk.start()) return false;
  disk.buffer()[0] = 0x1234;
  if (!disk.write(1) || !disk.flush()) return false;
  disk.buffer()[0] = 0;
  return disk.read(1) && disk.buffer()[0] == 0x1234;
}

}  // namespace

extern "C" void guest_main(const uint8_t*) {
  report(kReady, kBadQueue);
  for (;;) {
    if (kind_of(next_command(attacks)) != kGo) {
      report(kFail, kUnknownCommand);
      continue;
    }
    bool survived = true;
    for (uint32_t slot = 0; slot < kVirtioSlots && survived; slot++) survived = attack_device(slot);
    if (survived && disk_still_works())
      report(kAnswer, attacks);
    else
      report(kFail, kDeviceError);
  }
}
