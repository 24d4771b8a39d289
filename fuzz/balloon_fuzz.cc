// A hostile guest against the balloon and the entropy device: any descriptors, any page numbers.

#include <cstdlib>

#include "input.h"
#include "vmm/devices/balloon/device.h"
#include "vmm/devices/driver_fake.h"
#include "vmm/devices/rng/device.h"

namespace {

using namespace ramet;
using namespace ramet::vmm;

constexpr uint64_t kRam = 192 * 1024;

void drive(FuzzInput& in, DriverFake& driver, uint16_t queues, uint64_t features) {
  driver.start(queues, features);
  const GuestAddr bytes = driver.allocate(4096);
  while (!in.empty()) {
    const uint16_t queue = in.upto(queues - 1);
    std::vector<DriverFake::Buffer> buffers;
    for (int n = 1 + in.upto(3); n > 0; n--) {
      const bool inside = !in.rarely(8);
      const uint64_t at = inside ? in.upto(kRam) : in.number<uint64_t>();
      const uint32_t length = inside ? in.upto(70'000) : in.number<uint32_t>();
      buffers.push_back({{at}, length, in.coin()});
    }
    if (in.coin()) {
      const std::string text = in.bytes(64);
      driver.put_bytes(bytes, text);
      buffers = {{bytes, static_cast<uint32_t>(text.size()), false}};
    }
    driver.add(queue, buffers);
    driver.notify(queue);
    if (in.rarely(16)) driver.write(VIRTIO_MMIO_CONFIG + in.upto(64u), in.number<uint32_t>());
    if (driver.needs_reset()) driver.start(queues, features);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput in(data, size);
  if (in.coin()) {
    GuestMemory* memory = nullptr;
    BalloonDevice device([&memory](GuestAddr a, uint64_t n) {
      if (n == 0 || a.value % 4096 || n % 4096 || n > BalloonDevice::kMaxBytesPerKick) abort();
      return memory->resolve(a, n) != nullptr;
    });
    DriverFake driver(device, kRam);
    memory = &driver.memory();
    drive(in, driver, 3, 1ull << 5);
  } else {
    RngDevice device;
    DriverFake driver(device, kRam);
    drive(in, driver, 1, 0);
  }
  return 0;
}
