#include "vmm/devices/block/state.h"

#include "vmm/devices/block/block_state.pb.h"

namespace ramet::vmm {
namespace {
constexpr uint32_t kVersion = 1;
}

std::string encode_block_state(const BlockState& state) {
  BlockDeviceState out;
  out.set_version(kVersion);
  for (const uint16_t head : state.flushes) out.add_flushes(head);
  return out.SerializeAsString();
}

Result<BlockState> decode_block_state(std::string_view bytes, uint16_t queue_size) {
  BlockDeviceState in;
  if (!in.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || in.version() != kVersion ||
      in.flushes_size() > queue_size)
    return fail(ErrorKind::kCorrupt, "block device state cannot be read");
  BlockState state;
  for (const uint32_t head : in.flushes()) {
    if (head >= queue_size) return fail(ErrorKind::kCorrupt, "block device state names descriptor " + std::to_string(head));
    state.flushes.push_back(static_cast<uint16_t>(head));
  }
  return state;
}

}  // namespace ramet::vmm
