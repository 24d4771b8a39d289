// A hostile guest against the block device and its overlay stack, with a host that quiesces, freezes and resets at any moment.
// The input is a program: one byte says what happens next, the bytes behind it how. Rings, descriptors and requests are mostly
// plausible, or nothing behind the first check would be reached; sometimes they are plain noise.
#include <cstdlib>

#include "image/overlay_stack.h"
#include "image/testing/crash_file.h"
#include "input.h"
#include "vmm/devices/block/device.h"
#include "vmm/devices/driver_fake.h"

namespace {

using namespace ramet;
using namespace ramet::vmm;
using image::testing::CrashFile;
using image::testing::CrashOverlay;

constexpr uint64_t kRam = 128 * 1024;
constexpr uint64_t kDiskBlocks = 40;
constexpr int kMaxSteps = 200;

image::OverlayFiles files(const CrashOverlay& o) {
  return {o.id, std::make_unique<CrashFile>(o.data, true), std::make_unique<CrashFile>(o.log, true)};
}

struct World {
  explicit World(FuzzInput& data) : in(data), driver(device, kRam) { start(); }

  void start() { driver.start(1, features()); }
  uint64_t features() {
    const uint64_t ring = (1ull << VIRTIO_RING_F_EVENT_IDX) | (1ull << VIRTIO_RING_F_INDIRECT_DESC);
    return (in.coin() ? ring : 0) | (1ull << VIRTIO_BLK_F_FLUSH);
  }
  GuestAddr somewhere() { return {in.rarely(30) ? in.number<uint64_t>() : 16384 + in.upto(kRam - 16384 - 9000)}; }

  // A request that is mostly well formed.
  void request() {
    static constexpr uint32_t kTypes[] = {VIRTIO_BLK_T_IN,      VIRTIO_BLK_T_OUT,          VIRTIO_BLK_T_FLUSH,
                                          VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_WRITE_ZEROES, VIRTIO_BLK_T_GET_ID};
    const uint32_t type = in.rarely(20) ? in.number<uint32_t>() : kTypes[in.upto(5)];
    const GuestAddr header{8192};
    driver.store<uint32_t>(header, type);
    driver.store<uint64_t>({header.value + 8}, in.rarely(20) ? in.number<uint64_t>() : in.upto(kDiskBlocks) * 8);
    std::vector<DriverFake::Buffer> chain{{header, in.rarely(40) ? in.upto(20) : 16u, false}};
    const bool zeroes = type == VIRTIO_BLK_T_DISCARD || type == VIRTIO_BLK_T_WRITE_ZEROES;
    if (zeroes) {
      const GuestAddr segments{9000};
      const uint32_t n = in.upto(3);
      for (uint64_t i = 0; i < n; i++) {
        driver.store<uint64_t>({segments.value + 16 * i}, in.upto(kDiskBlocks) * 8);
        driver.store<uint32_t>({segments.value + 16 * i + 8}, in.rarely(10) ? in.number<uint32_t>() : in.upto(8) * 8);
        driver.store<uint32_t>({segments.value + 16 * i + 12}, in.rarely(10) ? in.number<uint32_t>() : in.upto(1));
      }
      chain.push_back({segments, n * 16, false});
    } else if (type == VIRTIO_BLK_T_IN || type == VIRTIO_BLK_T_OUT) {
      const bool writable = in.rarely(30) ? in.coin() : type == VIRTIO_BLK_T_IN;
      for (uint32_t pieces = 1 + in.upto(3); pieces > 0; pieces--)
        chain.push_back({somewhere(), in.rarely(15) ? in.upto(9000) : 4096u * (1 + in.upto(1)), writable});
    } else if (type == VIRTIO_BLK_T_GET_ID) {
      chain.push_back({somewhere(), in.upto(30), true});
    }
    if (!in.rarely(40)) chain.push_back({{10000}, 1, true});
    if (!driver.add(0, chain)) return start();
    driver.kick(0);
  }
  // Changes a ring, a descriptor or an indirect table behind the driver's back.
  void scribble() {
    const QueueLayout& l = driver.layout(0);
    const GuestAddr at{l.descriptors.value + in.upto(16 * DriverFake::kRingSize + 200)};
    driver.store<uint16_t>({at.value & ~1ull}, in.number<uint16_t>());
  }
  void indirect() {
    const GuestAddr table{12288};
    const uint32_t n = 1 + in.upto(6);
    for (uint64_t i = 0; i < n; i++) {
      const vring_desc d{somewhere().value, in.upto(9000), static_cast<uint16_t>(in.upto(7)),
                         static_cast<uint16_t>(in.upto(n))};
      driver.store({table.value + 16 * i}, d);
    }
    const DriverFake::Buffer placeholder{table, n * 16, false};
    const std::optional<uint16_t> head = driver.add(0, {&placeholder, 1});
    if (head) driver.store<uint16_t>({driver.layout(0).descriptors.value + 16ull * *head + 12}, VRING_DESC_F_INDIRECT);
    driver.notify(0);
  }
  void quiesce_freeze() {
    if (!driver.transport().quiesce(deadline_after(std::chrono::seconds(20)))) abort();
    const std::string saved = driver.transport().save();
    const Result<bool> frozen = stack->freeze();  // fails when the log takes no more
    if (frozen && *frozen) {
      overlays.push_back(std::make_unique<CrashOverlay>());
      if (!stack->start_writable(files(*overlays.back()))) abort();
    }
    if (in.coin()) {
      MemoryDevice other(*this);
      (void)other.transport.restore(saved);
    }
    driver.transport().resume();
  }
  struct MemoryDevice {  // takes the saved state of the device and is thrown away
    explicit MemoryDevice(World& w)
        : stack(std::move(*image::OverlayStack::open(nullptr, kDiskBlocks, {}, std::nullopt, image::HostHistory::kSameBoot))),
          device(*stack, {.id = "other"}),
          transport(w.driver.memory(), device, [] {}) {}
    std::unique_ptr<image::OverlayStack> stack;
    BlockDevice device;
    MmioTransport transport;
  };
  void register_noise() {
    uint64_t value = in.number<uint64_t>();
    const size_t width = size_t{1} << in.upto(3);
    const uint64_t offset = in.upto(0x1ff);
    driver.transport().bus_write(offset, std::as_bytes(std::span(&value, 1)).first(width));
    driver.transport().bus_read(offset, std::as_writable_bytes(std::span(&value, 1)).first(width));
  }
  void config() { driver.write(in.upto(63) * 4, in.number<uint32_t>()); }

  bool step() {
    switch (in.upto(15)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5: request(); break;
      case 6:
      case 7: scribble(); break;
      case 8: indirect(); break;
      case 9: driver.notify(in.upto(1)); break;
      case 10: quiesce_freeze(); break;
      case 11: start(); break;
      case 12: register_noise(); break;
      case 13: config(); break;
      case 14: overlays.back()->data->writes_before_failure = in.coin() ? static_cast<int>(in.upto(3)) : -1; break;
      default: overlays.back()->log->writes_before_failure = in.coin() ? static_cast<int>(in.upto(3)) : -1; break;
    }
    return !in.empty();
  }

  FuzzInput& in;
  std::vector<std::unique_ptr<CrashOverlay>> overlays = first_overlay();
  static std::vector<std::unique_ptr<CrashOverlay>> first_overlay() {
    std::vector<std::unique_ptr<CrashOverlay>> v;
    v.push_back(std::make_unique<CrashOverlay>());
    return v;
  }
  std::unique_ptr<image::OverlayStack> stack =
      std::move(*image::OverlayStack::open(nullptr, kDiskBlocks, {}, files(*overlays.back()), image::HostHistory::kSameBoot));
  BlockDevice device{*stack, {.id = "fuzz"}};
  DriverFake driver;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzInput in(data, size);
  World world(in);
  for (int i = 0; i < kMaxSteps && world.step(); i++) {
  }
  return 0;
}
