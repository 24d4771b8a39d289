#include "vmm/devices/ioapic/device.h"

#include <algorithm>
#include <cstring>

namespace ramet::vmm {
namespace {

// 82093AA data sheet, section 3.
constexpr uint64_t kSelectOffset = 0x00, kWindowOffset = 0x10;
constexpr uint32_t kRegisterId = 0, kRegisterVersion = 1, kRegisterArbitration = 2, kFirstRedirection = 0x10;
constexpr uint32_t kVersion = 0x11 | (layout::kIoapicPins - 1) << 16;
constexpr uint64_t kMasked = 1u << 16;
constexpr uint64_t kReadOnlyBits = 1u << 12 | 1u << 14;  // delivery status, remote IRR

}  // namespace

Ioapic::Ioapic(SendMessage send) : send_(std::move(send)) { state_.redirection.fill(kMasked); }

void Ioapic::pulse(uint32_t pin) {
  const std::lock_guard lock(mutex_);
  if (state_.redirection[pin] & kMasked)
    state_.latched |= 1u << pin;
  else
    deliver(pin);
}

void Ioapic::deliver(uint32_t pin) {
  const uint64_t r = state_.redirection[pin];
  const uint64_t destination = r >> 56 & 0xff, logical = r >> 11 & 1;
  const uint32_t vector = r & 0xff, delivery = r >> 8 & 7, trigger = r >> 15 & 1;
  send_(layout::kLapicBase | destination << 12 | logical << 2, vector | delivery << 8 | trigger << 15);
}

uint32_t Ioapic::read_register() const {
  const uint32_t s = state_.select;
  if (s == kRegisterId || s == kRegisterArbitration) return state_.id << 24;
  if (s == kRegisterVersion) return kVersion;
  if (s < kFirstRedirection || s >= kFirstRedirection + 2 * layout::kIoapicPins) return 0;
  const uint64_t r = state_.redirection[(s - kFirstRedirection) / 2];
  return static_cast<uint32_t>(s & 1 ? r >> 32 : r);
}

void Ioapic::write_register(uint32_t value) {
  const uint32_t s = state_.select;
  if (s == kRegisterId) state_.id = value >> 24 & 0xf;
  if (s < kFirstRedirection || s >= kFirstRedirection + 2 * layout::kIoapicPins) return;
  const uint32_t pin = (s - kFirstRedirection) / 2;
  uint64_t& r = state_.redirection[pin];
  r = s & 1 ? (r & 0xffffffff) | static_cast<uint64_t>(value) << 32 : (r & ~0xffffffffull) | (value & ~kReadOnlyBits);
  if ((r & kMasked) == 0 && (state_.latched >> pin & 1) != 0) {
    state_.latched &= ~(1u << pin);
    deliver(pin);
  }
}

void Ioapic::bus_read(uint64_t offset, std::span<std::byte> data) {
  uint32_t value = 0;
  {
    const std::lock_guard lock(mutex_);
    if (offset == kSelectOffset) value = state_.select;
    if (offset == kWindowOffset) value = read_register();
  }
  std::memset(data.data(), 0, data.size());
  std::memcpy(data.data(), &value, std::min(data.size(), sizeof value));
}

void Ioapic::bus_write(uint64_t offset, std::span<const std::byte> data) {
  uint32_t value = 0;
  std::memcpy(&value, data.data(), std::min(data.size(), sizeof value));
  const std::lock_guard lock(mutex_);
  if (offset == kSelectOffset) state_.select = value & 0xff;
  if (offset == kWindowOffset) write_register(value);
}

IoapicState Ioapic::save() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Ioapic::restore(const IoapicState& state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  state_.latched &= (1u << layout::kIoapicPins) - 1;
}

}  // namespace ramet::vmm
