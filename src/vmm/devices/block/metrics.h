// vmm/devices/block/metrics.h - counters of one block device. Thread: written and read from any.
#pragma once

#include <atomic>
#include <cstdint>

namespace ramet::vmm {

struct BlockMetrics {
  std::atomic<uint64_t> reads = 0;
  std::atomic<uint64_t> reads_inline = 0;  // of reads: answered from the page cache on the vCPU's thread
  std::atomic<uint64_t> writes = 0;
  std::atomic<uint64_t> flushes = 0;
  std::atomic<uint64_t> zeroes = 0;  // discards and write-zeroes
  std::atomic<uint64_t> read_bytes = 0;
  std::atomic<uint64_t> written_bytes = 0;
  std::atomic<uint64_t> errors = 0;  // requests answered with an error
};

}  // namespace ramet::vmm
