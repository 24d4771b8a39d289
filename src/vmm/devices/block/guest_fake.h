// vmm/devices/block/guest_fake.h - a virtio-blk driver for unit tests: one request at a time or several in flight, against a
// real transport. Thread: one, beside the device's own.
#pragma once

#include <linux/virtio_blk.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "base/endian.h"
#include "image/block.h"
#include "vmm/devices/block/device.h"
#include "vmm/devices/driver_fake.h"

namespace ramet::vmm {

class BlockGuestFake {
 public:
  explicit BlockGuestFake(BlockDevice& device) : driver(device) {}

  void start(uint64_t features = (1ull << VIRTIO_RING_F_EVENT_IDX) | (1ull << VIRTIO_BLK_F_FLUSH)) {
    driver.start(1, features);
    requests_.clear();
  }

  struct Request {
    GuestAddr data, status;
    uint32_t bytes = 0;
  };
  // Puts a request into the ring and kicks. `data` goes out, or `in_bytes` come in. The head names it.
  uint16_t submit(uint32_t type, uint64_t sector, std::string_view data, uint32_t in_bytes) {
    const uint32_t bytes = in_bytes ? in_bytes : static_cast<uint32_t>(data.size());
    const GuestAddr header = driver.allocate(16);
    const Request r{driver.allocate(bytes + 1), driver.allocate(1), bytes};
    driver.store<le32>(header, type);
    driver.store<le64>({header.value + 8}, sector);
    driver.store<uint8_t>(r.status, 0xee);
    driver.put_bytes(r.data, data);
    std::vector<DriverFake::Buffer> chain{{header, 16, false}};
    if (bytes) chain.push_back({r.data, bytes, in_bytes != 0});
    chain.push_back({r.status, 1, true});
    const uint16_t head = driver.add(0, chain).value();
    requests_[head] = r;
    driver.kick(0);
    return head;
  }

  struct Answer {
    uint16_t head = 0;
    uint8_t status = 0xff;
    std::string data;
    uint32_t written = 0;
  };
  // The next answer, waited for; nullopt after the time given.
  std::optional<Answer> take(std::chrono::milliseconds limit = std::chrono::seconds(10)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    do {
      if (const std::optional<DriverFake::Used> used = driver.take_used(0)) {
        const Request& r = requests_.at(used->head);
        return Answer{used->head, driver.load<uint8_t>(r.status), driver.bytes_at(r.data, r.bytes), used->written};
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    } while (std::chrono::steady_clock::now() < end);
    return std::nullopt;
  }

  Answer call(uint32_t type, uint64_t sector, std::string_view data = {}, uint32_t in_bytes = 0) {
    submit(type, sector, data, in_bytes);
    return take().value_or(Answer{});
  }
  uint8_t write_block(uint64_t block, char fill) { return call(VIRTIO_BLK_T_OUT, block * 8, std::string(4096, fill)).status; }
  // The block's bytes if they are all equal, else '!'.
  char read_block(uint64_t block) {
    const Answer a = call(VIRTIO_BLK_T_IN, block * 8, {}, 4096);
    if (a.status != VIRTIO_BLK_S_OK || a.data != std::string(4096, a.data[0])) return '!';
    return a.data[0];
  }
  uint8_t flush() { return call(VIRTIO_BLK_T_FLUSH, 0).status; }
  uint8_t zero(uint32_t type, uint64_t sector, uint32_t sectors, uint32_t flags = 0) {
    std::string segment(16, '\0');
    const le64 s = sector;
    const le32 n = sectors, f = flags;
    segment.replace(0, 8, reinterpret_cast<const char*>(&s), 8);
    segment.replace(8, 4, reinterpret_cast<const char*>(&n), 4);
    segment.replace(12, 4, reinterpret_cast<const char*>(&f), 4);
    return call(type, 0, segment).status;
  }

  DriverFake driver;

 private:
  std::map<uint16_t, Request> requests_;
};

}  // namespace ramet::vmm
