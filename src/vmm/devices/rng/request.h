// vmm/devices/rng/request.h - one request for randomness: fills the writable part of a chain from the host's generator.
// Not here: queues. Thread: stateless.
#pragma once

#include <cstdint>

#include "vmm/virtio/queue.h"

namespace ramet::vmm {

// A guest asks for 64 bytes at a time; whoever asks for more gets this much of it, which the specification allows.
inline constexpr uint32_t kMaxRandomBytesPerRequest = 4096;

// The number of bytes written, at most kMaxRandomBytesPerRequest. 0: the chain has no room or the host has no randomness.
uint32_t fill_with_randomness(const DescriptorChain& chain, const GuestMemory& memory);

}  // namespace ramet::vmm
