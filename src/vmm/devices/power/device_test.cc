#include "vmm/devices/power/device.h"

#include <gtest/gtest.h>

#include <vector>

namespace ramet::vmm {
namespace {

class PowerControlTest : public ::testing::Test {
 protected:
  void write(uint64_t offset, uint8_t v) { power.bus_write(offset, std::as_bytes(std::span(&v, 1))); }
  std::vector<PowerAction> actions;
  int edges = 0;
  PowerControl power{[this](PowerAction a) { actions.push_back(a); }, [this] { edges++; }};
};

TEST_F(PowerControlTest, SleepS5IsOff) {
  write(0, 1 << 5 | 5 << 2);
  EXPECT_EQ(actions, std::vector<PowerAction>{PowerAction::kOff});
}

TEST_F(PowerControlTest, OtherSleepTypesAreIgnored) {
  write(0, 1 << 5 | 3 << 2);
  write(0, 5 << 2);
  EXPECT_TRUE(actions.empty());
}

TEST_F(PowerControlTest, ResetNeedsItsValue) {
  write(2, 0);
  EXPECT_TRUE(actions.empty());
  write(2, 1);
  EXPECT_EQ(actions, std::vector<PowerAction>{PowerAction::kReset});
}

TEST_F(PowerControlTest, ButtonIsAnEdge) {
  power.press_button();
  EXPECT_EQ(edges, 1);
}

}  // namespace
}  // namespace ramet::vmm
