#include "vmm/devices/balloon/state.h"

#include <cstring>

#include "base/endian.h"

namespace ramet::vmm {
namespace {

struct WireState {
  le32 version, target_pages, actual_pages;
};
static_assert(sizeof(WireState) == 12);
constexpr uint32_t kVersion = 1;

}  // namespace

std::string encode_balloon_state(const BalloonState& state) {
  WireState wire;
  wire.version = kVersion;
  wire.target_pages = state.target_pages;
  wire.actual_pages = state.actual_pages;
  return std::string(reinterpret_cast<const char*>(&wire), sizeof wire);
}

Result<BalloonState> decode_balloon_state(std::string_view bytes) {
  WireState wire;
  if (bytes.size() != sizeof wire)
    return fail(ErrorKind::kCorrupt,
                "balloon state has " + std::to_string(bytes.size()) + " bytes, not " + std::to_string(sizeof wire));
  std::memcpy(&wire, bytes.data(), sizeof wire);
  if (wire.version != kVersion)
    return fail(ErrorKind::kCorrupt, "balloon state has version " + std::to_string(wire.version) + ", not 1");
  return BalloonState{wire.target_pages, wire.actual_pages};
}

}  // namespace ramet::vmm
