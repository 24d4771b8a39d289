// base/endian.h - explicit little-endian integers for disk, wire and guest formats; sizeof is exact, alignment is 1.
// Thread: values.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>

namespace ramet {

static_assert(std::endian::native == std::endian::little, "Ramet runs on little-endian hosts only");

template <std::unsigned_integral T>
class Little {
 public:
  constexpr Little() = default;
  constexpr Little(T v) { *this = v; }  // NOLINT(google-explicit-constructor): reads like the integer it is
  Little& operator=(T v) {
    std::memcpy(bytes_, &v, sizeof v);
    return *this;
  }
  operator T() const {  // NOLINT(google-explicit-constructor)
    T v;
    std::memcpy(&v, bytes_, sizeof v);
    return v;
  }

 private:
  unsigned char bytes_[sizeof(T)] = {};
};

using le16 = Little<uint16_t>;
using le32 = Little<uint32_t>;
using le64 = Little<uint64_t>;
static_assert(sizeof(le16) == 2 && sizeof(le32) == 4 && sizeof(le64) == 8 && alignof(le64) == 1);

}  // namespace ramet
