#include "vmm/virtio/mmio.h"

#include <gtest/gtest.h>

#include "vmm/devices/driver_fake.h"

namespace ramet::vmm {
namespace {

// Records what the transport does with it.
class RecordingDevice final : public VirtioDevice {
 public:
  uint32_t device_id() const override { return 42; }
  uint64_t offered_features() const override { return 1ull << 3; }
  std::vector<uint16_t> queue_sizes() const override { return {DriverFake::kRingSize, 4}; }
  void read_config(uint64_t offset, std::span<std::byte> out) const override { out[0] = static_cast<std::byte>(offset); }
  void write_config(uint64_t offset, std::span<const std::byte>) override { calls += "w" + std::to_string(offset); }
  void activate(const DeviceContext& c) override {
    context = c;
    calls += "A";
  }
  void queue_notify(uint16_t queue) override { calls += "n" + std::to_string(queue); }
  void reset() override { calls += "R"; }
  Status quiesce(Deadline) override {
    calls += "q";
    return {};
  }
  void resume() override { calls += "r"; }
  std::string save() const override { return "state"; }
  Status restore(std::string_view s) override {
    calls += s;
    return {};
  }
  void after_fork() override { calls += "f"; }

  DeviceContext context;
  std::string calls;
};

struct Mmio : ::testing::Test {
  RecordingDevice device;
  DriverFake driver{device};
};

TEST_F(Mmio, SaysWhatItIs) {
  EXPECT_EQ(driver.read(VIRTIO_MMIO_MAGIC_VALUE), 0x74726976u);
  EXPECT_EQ(driver.read(VIRTIO_MMIO_VERSION), 2u);
  EXPECT_EQ(driver.read(VIRTIO_MMIO_DEVICE_ID), 42u);
  EXPECT_EQ(driver.read(VIRTIO_MMIO_CONFIG + 7), 7u);
  driver.write(VIRTIO_MMIO_QUEUE_SEL, 1);
  EXPECT_EQ(driver.read(VIRTIO_MMIO_QUEUE_NUM_MAX), 4u);
  driver.write(VIRTIO_MMIO_QUEUE_SEL, 2);
  EXPECT_EQ(driver.read(VIRTIO_MMIO_QUEUE_NUM_MAX), 0u);
  EXPECT_EQ(driver.read(VIRTIO_MMIO_SHM_LEN_LOW), 0xffffffffu);
}

TEST_F(Mmio, GoesThroughTheStatesToActive) {
  driver.start(1);
  EXPECT_EQ(device.calls, "A");
  EXPECT_TRUE(device.context.queues[0].ready());
  EXPECT_FALSE(device.context.queues[1].ready());
  EXPECT_TRUE(device.context.features & (1ull << VIRTIO_F_VERSION_1));
  driver.notify(0);
  driver.notify(2);  // there is none
  EXPECT_EQ(device.calls, "An0");
  driver.reset();
  EXPECT_EQ(device.calls, "An0R");
  EXPECT_EQ(driver.read(VIRTIO_MMIO_STATUS), 0u);
  EXPECT_FALSE(device.context.queues[0].ready());
}

TEST_F(Mmio, RefusesFeaturesThatWereNotOffered) {
  driver.start(1, 1ull << 9);
  EXPECT_FALSE(driver.read(VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_FEATURES_OK);
  EXPECT_EQ(device.calls, "");
}

TEST_F(Mmio, RefusesADriverThatSkipsNegotiation) {
  driver.write(VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_DRIVER_OK);
  driver.notify(0);
  EXPECT_EQ(device.calls, "");
}

TEST_F(Mmio, AQueueOutsideOfRamNeedsAReset) {
  driver.write(VIRTIO_MMIO_QUEUE_NUM, 16);
  driver.write(VIRTIO_MMIO_QUEUE_DESC_HIGH, 1);
  driver.write(VIRTIO_MMIO_QUEUE_READY, 1);
  EXPECT_EQ(driver.read(VIRTIO_MMIO_QUEUE_READY), 0u);
  EXPECT_TRUE(driver.needs_reset());
}

TEST_F(Mmio, ALiveQueueCannotBeMoved) {
  driver.start(1);
  const QueueLayout before = device.context.queues[0].layout();
  driver.write(VIRTIO_MMIO_QUEUE_SEL, 0);
  driver.write(VIRTIO_MMIO_QUEUE_DESC_LOW, 0x5000);
  driver.write(VIRTIO_MMIO_QUEUE_READY, 1);
  EXPECT_EQ(device.context.queues[0].layout().descriptors, before.descriptors);
  driver.write(VIRTIO_MMIO_QUEUE_READY, 0);
  EXPECT_TRUE(driver.needs_reset());
}

TEST_F(Mmio, InterruptsArePendingUntilAcknowledged) {
  driver.start(1);
  device.context.raise_used();
  device.context.raise_config();
  EXPECT_EQ(driver.interrupts(), 2);
  EXPECT_EQ(driver.read(VIRTIO_MMIO_INTERRUPT_STATUS), 3u);
  driver.write(VIRTIO_MMIO_INTERRUPT_ACK, 1);
  EXPECT_EQ(driver.read(VIRTIO_MMIO_INTERRUPT_STATUS), 2u);
  EXPECT_EQ(driver.read(VIRTIO_MMIO_CONFIG_GENERATION), 1u);
}

TEST_F(Mmio, OddAccessesAreIgnored) {
  std::byte one{};
  driver.transport().bus_read(VIRTIO_MMIO_MAGIC_VALUE, {&one, 1});
  EXPECT_EQ(one, std::byte{0});
  driver.transport().bus_write(VIRTIO_MMIO_STATUS + 1, {&one, 1});
  std::byte eight[8]{};
  driver.transport().bus_write(VIRTIO_MMIO_CONFIG, eight);
  EXPECT_EQ(device.calls, "w0");
}

TEST_F(Mmio, ResumeKicksEveryQueueAndRepeatsAPendingInterrupt) {
  driver.start(2 - 1);
  device.context.raise_used();
  ASSERT_TRUE(driver.transport().quiesce({}));
  driver.notify(0);  // not passed on
  driver.transport().resume();
  EXPECT_EQ(device.calls, "Aqrn0");
  EXPECT_EQ(driver.interrupts(), 2);
}

TEST_F(Mmio, RestoreBringsTheSameStateBack) {
  driver.start(1);
  device.context.raise_used();
  ASSERT_TRUE(driver.transport().quiesce({}));
  const std::string saved = driver.transport().save();
  RecordingDevice other;
  int interrupts = 0;
  MmioTransport transport(driver.memory(), other, [&] { interrupts++; });
  ASSERT_TRUE(transport.restore(saved));
  EXPECT_EQ(other.calls, "stateA");
  transport.resume();
  EXPECT_EQ(other.calls, "stateArn0");
  EXPECT_EQ(interrupts, 1);
  EXPECT_EQ(transport.save(), saved);
}

TEST_F(Mmio, ForeignStateIsRefused) {
  driver.start(1);
  std::string saved = driver.transport().save();
  RecordingDevice other;
  EXPECT_FALSE(MmioTransport(driver.memory(), other, [] {}).restore(saved.substr(0, 5)));
  // RAM of the new machine is smaller than where the rings lie.
  std::vector<std::byte> small(4096);
  const GuestMemory memory(small.data(), small.size());
  RecordingDevice third;
  EXPECT_EQ(MmioTransport(memory, third, [] {}).restore(saved).error().kind(), ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace ramet::vmm
