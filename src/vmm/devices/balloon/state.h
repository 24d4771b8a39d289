// vmm/devices/balloon/state.h - the balloon's numbers as bytes. Thread: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ramet::vmm {

struct BalloonState {
  uint32_t target_pages = 0;  // num_pages: what the host wants
  uint32_t actual_pages = 0;  // actual: what the guest says it gave

  friend bool operator==(const BalloonState&, const BalloonState&) = default;
};

std::string encode_balloon_state(const BalloonState& state);
// Errors: kCorrupt (length or version).
Result<BalloonState> decode_balloon_state(std::string_view bytes);

}  // namespace ramet::vmm
