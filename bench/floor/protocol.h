// bench/floor/protocol.h - messages between bench_fork and fork_floor over one SOCK_SEQPACKET pair.
// A request is one FloorRequest. Replies, and what a child reports, are FloorReply of the same size.
#pragma once

#include <cstdint>

namespace ramet::bench {

enum class FloorOp : uint32_t {
  kWord = 1,     // gives `word` to the guest; reply: its next word
  kFork,         // forks; replies: kForked from the parent and kChildRuns from the child, in any order
  kEndChildren,  // ends every living child; reply when they are gone
  kDescend,      // forks, and the child becomes the machine that the next requests speak to; reply: kReady from the child
  kRestart,      // drops this machine and all its ancestors up to the zygote, which forks a new one; reply: kReady
};

enum class FloorEvent : uint32_t { kAnswer = 1, kForked, kChildRuns, kEnded, kReady };

struct FloorRequest {
  FloorOp op;
  uint32_t word;
};

struct FloorReply {
  FloorEvent event;
  uint32_t word;        // of the guest
  uint64_t stop_ns;     // kForked: vCPU of the parent out of KVM_RUN
  uint64_t fork_ns;     // kForked: fork(2) alone
  uint64_t create_ns;   // kChildRuns: new VM with slots and vCPU
  uint64_t restore_ns;  // kChildRuns
  uint64_t at_ns;       // kChildRuns: CLOCK_MONOTONIC of the first port exit
};

}  // namespace ramet::bench
