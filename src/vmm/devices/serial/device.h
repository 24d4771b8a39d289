// vmm/devices/serial/device.h - a 16550A UART as Linux' 8250 driver needs it; output goes to a function, input comes only from
// its own loopback mode (nobody types on this console). The driver probes loopback of the modem lines, IER read-back, and that
// enabling THRI with an empty transmitter interrupts at once; on an edge line every byte lowers and raises it again.
// Not here: where text goes (console_log.h). Thread: any vCPU; locks itself, then the IOAPIC. Fork: plain memory. Owner:
// machine.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "vmm/bus.h"

namespace ramet::vmm {

struct SerialState {
  uint8_t interrupt_enable = 0, line_control = 0, modem_control = 0, scratch = 0, divisor_low = 1, divisor_high = 0,
          fifo_control = 0;
  bool transmit_empty_pending = false;
  bool line = false;     // level of the interrupt line
  std::string received;  // looped back, at most kFifoBytes
};

class Serial final : public BusDevice {
 public:
  static constexpr size_t kFifoBytes = 16;
  Serial(std::function<void(char)> output, std::function<void()> interrupt)
      : output_(std::move(output)), interrupt_(std::move(interrupt)) {}

  void bus_read(uint64_t offset, std::span<std::byte> data) override;
  void bus_write(uint64_t offset, std::span<const std::byte> data) override;

  SerialState save() const;
  void restore(const SerialState& state);

 private:
  uint8_t read_register(uint64_t offset);
  void write_register(uint64_t offset, uint8_t value);
  uint8_t identify_interrupt();
  uint8_t modem_status() const;
  void transmit(uint8_t value);
  void update_line();
  bool divisor_selected() const { return (state_.line_control & 0x80) != 0; }
  bool receive_interrupt() const { return (state_.interrupt_enable & 1) != 0 && !state_.received.empty(); }
  bool transmit_interrupt() const { return (state_.interrupt_enable & 2) != 0 && state_.transmit_empty_pending; }

  const std::function<void(char)> output_;
  const std::function<void()> interrupt_;
  mutable std::mutex mutex_;  // guards state_
  SerialState state_;
};

}  // namespace ramet::vmm
