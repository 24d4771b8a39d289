// kvm/msr.h - the model-specific registers that save and restore treat on their own. Private to src/kvm.
#pragma once

#include <cstdint>

namespace ramet::kvm {

inline constexpr uint32_t kMsrTsc = 0x10;
inline constexpr uint32_t kMsrTscDeadline = 0x6e0;

}  // namespace ramet::kvm
