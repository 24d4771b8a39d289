// vmm/devices/block/state.h - what a saved block device holds besides its queue: the flushes that were in flight. Pure codec.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ramet::vmm {

struct BlockState {
  std::vector<uint16_t> flushes;  // heads of their chains
};

std::string encode_block_state(const BlockState& state);
// Errors: kCorrupt.
Result<BlockState> decode_block_state(std::string_view bytes, uint16_t queue_size);

}  // namespace ramet::vmm
