// vmm/devices/ioapic/device.h - the I/O interrupt controller (82093AA registers, 24 pins) in user space. Every pin is an edge
// pin: a rising edge becomes one message-signalled interrupt. An edge on a masked pin is kept and sent when the guest unmasks
// it (the real chip loses it; a guest that masks around its handler must not lose a completion). Not here: LAPICs (KVM has
// them), level triggering and EOI. Thread: any; locks itself, last in every lock order. Fork: plain memory, inherited as it is.
// Owner: the machine.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>

#include "base/result.h"
#include "vmm/bus.h"
#include "vmm/layout.h"

namespace ramet::vmm {

struct IoapicState {
  uint32_t id = 0, select = 0, latched = 0;
  std::array<uint64_t, layout::kIoapicPins> redirection{};
};

class Ioapic final : public BusDevice {
 public:
  using SendMessage = std::function<void(uint64_t address, uint32_t data)>;
  explicit Ioapic(SendMessage send);

  // A rising edge.   Requires: pin < kIoapicPins.
  void pulse(uint32_t pin);

  void bus_read(uint64_t offset, std::span<std::byte> data) override;
  void bus_write(uint64_t offset, std::span<const std::byte> data) override;

  IoapicState save() const;
  void restore(const IoapicState& state);

 private:
  uint32_t read_register() const;
  void write_register(uint32_t value);
  void deliver(uint32_t pin);

  const SendMessage send_;
  mutable std::mutex mutex_;  // guards state_
  IoapicState state_;
};

}  // namespace ramet::vmm
