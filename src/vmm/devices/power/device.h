// vmm/devices/power/device.h - how a machine ends or is asked to: ACPI sleep and reset registers (hardware-reduced ACPI,
// ACPI 6.4 section 4.8.3.7) and the power button. Not here: ending the process (the machine's owner does), AML (boot/). Thread:
// registers from vCPUs, press() from the event loop. No state. Owner: the machine.
#pragma once

#include <cstring>
#include <functional>

#include "vmm/bus.h"
#include "vmm/layout.h"

namespace ramet::vmm {

enum class PowerAction { kOff, kReset };

class PowerControl final : public BusDevice {
 public:
  PowerControl(std::function<void(PowerAction)> action, std::function<void()> button_edge)
      : action_(std::move(action)), button_edge_(std::move(button_edge)) {}

  // The guest's ACPI driver sees a button press; what it does is its decision.
  void press_button() const { button_edge_(); }

  void bus_read(uint64_t, std::span<std::byte> data) override { std::memset(data.data(), 0, data.size()); }
  void bus_write(uint64_t offset, std::span<const std::byte> data) override {
    const uint8_t v = std::to_integer<uint8_t>(data[0]);
    constexpr uint8_t kSleepEnable = 1u << 5;
    if (offset == layout::kSleepControlPort - layout::kPowerPorts && (v & kSleepEnable) != 0 &&
        (v >> 2 & 7) == layout::kSleepTypeS5)
      action_(PowerAction::kOff);
    if (offset == layout::kResetPort - layout::kPowerPorts && v == layout::kResetValue) action_(PowerAction::kReset);
  }

 private:
  const std::function<void(PowerAction)> action_;
  const std::function<void()> button_edge_;
};

}  // namespace ramet::vmm
