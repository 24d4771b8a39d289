#include "vmm/devices/ioapic/device.h"

#include <gtest/gtest.h>

#include <vector>

namespace ramet::vmm {
namespace {

struct Message {
  uint64_t address;
  uint32_t data;
  bool operator==(const Message&) const = default;
};

class IoapicTest : public ::testing::Test {
 protected:
  void write(uint32_t reg, uint32_t value) {
    ioapic.bus_write(0x00, std::as_bytes(std::span(&reg, 1)));
    ioapic.bus_write(0x10, std::as_bytes(std::span(&value, 1)));
  }
  uint32_t read(uint32_t reg) {
    uint32_t value = 0;
    ioapic.bus_write(0x00, std::as_bytes(std::span(&reg, 1)));
    ioapic.bus_read(0x10, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  void route(uint32_t pin, uint32_t low, uint32_t high) {
    write(0x10 + 2 * pin + 1, high);
    write(0x10 + 2 * pin, low);
  }
  std::vector<Message> sent;
  Ioapic ioapic{[this](uint64_t address, uint32_t data) { sent.push_back({address, data}); }};
};

TEST_F(IoapicTest, ReportsVersionAndPins) { EXPECT_EQ(read(1), 0x170011u); }

TEST_F(IoapicTest, EdgeBecomesMessage) {
  route(16, 0x31, 0x02000000);
  ioapic.pulse(16);
  EXPECT_EQ(sent, (std::vector<Message>{{0xfee02000, 0x31}}));
}

TEST_F(IoapicTest, LogicalLowestPriority) {
  route(17, 0x0931, 0x03000000);
  ioapic.pulse(17);
  EXPECT_EQ(sent, (std::vector<Message>{{0xfee03004, 0x131}}));
}

TEST_F(IoapicTest, MaskedEdgeIsKeptAndSentOnceOnUnmask) {
  ioapic.pulse(5);
  EXPECT_TRUE(sent.empty());
  route(5, 0x44, 0);
  EXPECT_EQ(sent.size(), 1u);
  route(5, 0x10044, 0);
  route(5, 0x44, 0);
  EXPECT_EQ(sent.size(), 1u);
}

TEST_F(IoapicTest, SavedStateCarriesLatchedEdge) {
  ioapic.pulse(5);
  const IoapicState state = ioapic.save();
  route(5, 0x44, 0);
  sent.clear();
  ioapic.restore(state);
  route(5, 0x45, 0);
  EXPECT_EQ(sent, (std::vector<Message>{{0xfee00000, 0x45}}));
}

TEST_F(IoapicTest, UnknownRegistersReadZero) {
  write(0x7f, 0xffffffff);
  EXPECT_EQ(read(0x7f), 0u);
}

}  // namespace
}  // namespace ramet::vmm
