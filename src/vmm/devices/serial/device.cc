#include "vmm/devices/serial/device.h"

#include <cstring>

namespace ramet::vmm {
namespace {

// PC16550D data sheet, section 8.
enum Register : uint64_t { kData = 0, kIer = 1, kIir = 2, kLcr = 3, kMcr = 4, kLsr = 5, kMsr = 6, kScr = 7 };
constexpr uint8_t kMcrLoop = 0x10;
constexpr uint8_t kLsrTransmitterEmpty = 0x60, kLsrDataReady = 0x01;
constexpr uint8_t kMsrConnected = 0xb0;  // DCD, DSR, CTS
constexpr uint8_t kIirNone = 1, kIirTransmit = 2, kIirReceive = 4, kIirFifo = 0xc0;

}  // namespace

void Serial::update_line() {
  const bool level = receive_interrupt() || transmit_interrupt();
  if (level && !state_.line) interrupt_();
  state_.line = level;
}

uint8_t Serial::identify_interrupt() {
  const uint8_t fifo = (state_.fifo_control & 1) != 0 ? kIirFifo : 0;
  if (receive_interrupt()) return fifo | kIirReceive;
  if (!transmit_interrupt()) return fifo | kIirNone;
  state_.transmit_empty_pending = false;  // reading it acknowledges
  update_line();
  return fifo | kIirTransmit;
}

uint8_t Serial::modem_status() const {
  const uint8_t m = state_.modem_control;
  if ((m & kMcrLoop) == 0) return kMsrConnected;
  // DTR -> DSR, RTS -> CTS, OUT1 -> RI, OUT2 -> DCD
  return static_cast<uint8_t>((m & 1) << 5 | (m & 2) << 3 | (m & 4) << 4 | (m & 8) << 4);
}

uint8_t Serial::read_register(uint64_t offset) {
  switch (offset) {
    case kData: {
      if (divisor_selected()) return state_.divisor_low;
      if (state_.received.empty()) return 0;
      const uint8_t c = static_cast<uint8_t>(state_.received.front());
      state_.received.erase(0, 1);
      state_.line = false;  // more in the queue: a fresh edge
      update_line();
      return c;
    }
    case kIer: return divisor_selected() ? state_.divisor_high : state_.interrupt_enable;
    case kIir: return identify_interrupt();
    case kLcr: return state_.line_control;
    case kMcr: return state_.modem_control;
    case kLsr: return kLsrTransmitterEmpty | (state_.received.empty() ? 0 : kLsrDataReady);
    case kMsr: return modem_status();
    case kScr: return state_.scratch;
    default: return 0xff;
  }
}

void Serial::transmit(uint8_t value) {
  if ((state_.modem_control & kMcrLoop) != 0) {
    if (state_.received.size() < kFifoBytes) state_.received.push_back(static_cast<char>(value));
    update_line();
    return;
  }
  output_(static_cast<char>(value));
  state_.transmit_empty_pending = false;
  update_line();
  state_.transmit_empty_pending = true;  // sent at once: empty again
  update_line();
}

void Serial::write_register(uint64_t offset, uint8_t value) {
  switch (offset) {
    case kData:
      if (divisor_selected())
        state_.divisor_low = value;
      else
        transmit(value);
      return;
    case kIer:
      if (divisor_selected()) {
        state_.divisor_high = value;
        return;
      }
      if ((value & 2) != 0 && (state_.interrupt_enable & 2) == 0) state_.transmit_empty_pending = true;
      state_.interrupt_enable = value & 0x0f;
      update_line();
      return;
    case kIir:  // written: FIFO control
      state_.fifo_control = value;
      if ((value & 2) != 0) {
        state_.received.clear();
        update_line();
      }
      return;
    case kLcr: state_.line_control = value; return;
    case kMcr: state_.modem_control = value & 0x1f; return;
    case kScr: state_.scratch = value; return;
    default: return;
  }
}

void Serial::bus_read(uint64_t offset, std::span<std::byte> data) {
  std::memset(data.data(), 0xff, data.size());
  if (data.size() != 1) return;
  const std::lock_guard lock(mutex_);
  data[0] = std::byte{read_register(offset)};
}

void Serial::bus_write(uint64_t offset, std::span<const std::byte> data) {
  if (data.size() != 1) return;
  const std::lock_guard lock(mutex_);
  write_register(offset, std::to_integer<uint8_t>(data[0]));
}

SerialState Serial::save() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Serial::restore(const SerialState& state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  if (state_.received.size() > kFifoBytes) state_.received.resize(kFifoBytes);
}

}  // namespace ramet::vmm
