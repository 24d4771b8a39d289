// vmm/memory/guest_memory.h - the one door to guest RAM: every guest address is checked here, and bytes are copied out before
// they are looked at. RAM lies below 3 GiB and, for the rest, from 4 GiB (one mapping range on the host side, in guest order).
// Not here: how RAM is mapped (segments.h), KVM slots. Thread: concurrent use is fine; the guest writes at the same time.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "base/checked.h"
#include "base/result.h"

namespace ramet::vmm {

// A guest physical address; only GuestMemory turns it into bytes.
struct GuestAddr {
  uint64_t value = 0;
  friend constexpr auto operator<=>(GuestAddr, GuestAddr) = default;
};
// nullopt when the sum wraps.
constexpr std::optional<GuestAddr> offset_by(GuestAddr a, uint64_t bytes) {
  const std::optional<uint64_t> sum = checked_add(a.value, bytes);
  if (!sum) return std::nullopt;
  return GuestAddr{*sum};
}

inline constexpr uint64_t kLowRamEnd = 3ull << 30;  // the hole for devices begins here
inline constexpr uint64_t kHighRamStart = 4ull << 30;

class GuestMemory {
 public:
  // Requires: [base, base + size) stays mapped as long as this object.
  GuestMemory(std::byte* base, uint64_t size_bytes) : base_(base), size_(size_bytes) {}

  uint64_t size_bytes() const { return size_; }
  std::byte* host_base() const { return base_; }

  // The one range check: the host pointer of [a, a + length), or nullptr when any byte of it is not RAM. A range never spans
  // the hole.
  std::byte* resolve(GuestAddr a, uint64_t length) const {
    const uint64_t low = size_ < kLowRamEnd ? size_ : kLowRamEnd;
    if (range_within(a.value, length, low)) return base_ + a.value;
    if (size_ > kLowRamEnd && a.value >= kHighRamStart && range_within(a.value - kHighRamStart, length, size_ - kLowRamEnd))
      return base_ + kLowRamEnd + (a.value - kHighRamStart);
    return nullptr;
  }

  // False when the range is not RAM; then nothing was copied.
  [[nodiscard]] bool read(GuestAddr a, std::span<std::byte> out) const {
    const std::byte* p = resolve(a, out.size());
    if (!p) return false;
    std::memcpy(out.data(), p, out.size());
    return true;
  }
  [[nodiscard]] bool write(GuestAddr a, std::span<const std::byte> in) const {
    std::byte* p = resolve(a, in.size());
    if (!p) return false;
    std::memcpy(p, in.data(), in.size());
    return true;
  }
  template <class T>
  [[nodiscard]] bool read_object(GuestAddr a, T& out) const {
    static_assert(std::is_trivially_copyable_v<T>);
    return read(a, std::as_writable_bytes(std::span<T, 1>(&out, 1)));
  }
  template <class T>
  [[nodiscard]] bool write_object(GuestAddr a, const T& in) const {
    static_assert(std::is_trivially_copyable_v<T>);
    return write(a, std::as_bytes(std::span<const T, 1>(&in, 1)));
  }

  // Naturally aligned shared words of a virtqueue. False: not RAM or not aligned.
  [[nodiscard]] bool load_acquire(GuestAddr a, uint16_t& out) const {
    std::byte* p = resolve(a, sizeof out);
    if (!p || a.value % sizeof out != 0) return false;
    out = std::atomic_ref<uint16_t>(*reinterpret_cast<uint16_t*>(p)).load(std::memory_order_acquire);
    return true;
  }
  [[nodiscard]] bool store_release(GuestAddr a, uint16_t value) const {
    std::byte* p = resolve(a, sizeof value);
    if (!p || a.value % sizeof value != 0) return false;
    std::atomic_ref<uint16_t>(*reinterpret_cast<uint16_t*>(p)).store(value, std::memory_order_release);
    return true;
  }

  // Appends the range to an iovec list for bulk I/O by system calls. False: not RAM.
  [[nodiscard]] bool append_iovec(GuestAddr a, uint64_t length, std::vector<iovec>& out) const {
    std::byte* p = resolve(a, length);
    if (!p) return false;
    out.push_back({p, static_cast<size_t>(length)});
    return true;
  }

 private:
  std::byte* base_;
  uint64_t size_;
};

}  // namespace ramet::vmm
