#include "vmm/devices/vsock/state.h"

#include <cstring>

#include "base/endian.h"

namespace ramet::vmm::vsock {
namespace {

struct WireState {
  le16 version;
  le16 gate;
  le16 announced_at;
  le16 reserved;
  le32 last_port;
};
static_assert(sizeof(WireState) == 12);
constexpr uint16_t kVersion = 1;

}  // namespace

std::string encode_state(const State& state) {
  WireState wire;
  wire.version = kVersion;
  wire.gate = static_cast<uint16_t>(state.gate);
  wire.announced_at = state.announced_at;
  wire.last_port = state.last_port;
  return std::string(reinterpret_cast<const char*>(&wire), sizeof wire);
}

Result<State> decode_state(std::string_view bytes) {
  WireState wire;
  if (bytes.size() != sizeof wire)
    return fail(ErrorKind::kCorrupt,
                "vsock state has " + std::to_string(bytes.size()) + " bytes, not " + std::to_string(sizeof wire));
  std::memcpy(&wire, bytes.data(), sizeof wire);
  if (wire.version != kVersion)
    return fail(ErrorKind::kCorrupt, "vsock state has version " + std::to_string(wire.version) + ", not 1");
  if (wire.gate > static_cast<uint16_t>(Gate::kAnnounced))
    return fail(ErrorKind::kCorrupt, "vsock state has gate " + std::to_string(wire.gate));
  return State{wire.last_port, static_cast<Gate>(static_cast<uint16_t>(wire.gate)), wire.announced_at};
}

}  // namespace ramet::vmm::vsock
