// Writes and checks pages of its RAM as told: start page, stride and value are set by words of their own, then a count of
// pages.
#include "guest.h"

using namespace ramet::guests;

namespace {

// The boot protocol maps 4 GiB. Pages above are reached through tables of our own: 2 MiB pages for kMappedBytes.
inline constexpr uint64_t kMappedGiB = 16;
alignas(4096) uint64_t level4[512];
alignas(4096) uint64_t level3[512];
alignas(4096) uint64_t level2[kMappedGiB * 512];

void map_all_ram() {
  constexpr uint64_t kPresentWritable = 3, kLargePage = 1 << 7;
  for (uint64_t i = 0; i < kMappedGiB * 512; i++) level2[i] = i << 21 | kLargePage | kPresentWritable;
  for (uint64_t i = 0; i < kMappedGiB; i++) level3[i] = reinterpret_cast<uint64_t>(&level2[i * 512]) | kPresentWritable;
  level4[0] = reinterpret_cast<uint64_t>(level3) | kPresentWritable;
  asm volatile("movq %0, %%cr3" : : "r"(level4) : "memory");
}

struct Range {
  uint64_t start_page = 1 << 10;
  uint64_t stride_pages = 1;
  uint32_t value = 1;
  volatile uint64_t& page(uint64_t i) const { return ram_at((start_page + i * stride_pages) * kPageBytes); }
};

uint32_t write(const Range& range, uint32_t pages) {
  for (uint64_t i = 0; i < pages; i++) range.page(i) = range.value;
  return pages;
}

uint32_t count(const Range& range, uint32_t pages) {
  uint32_t equal = 0;
  for (uint64_t i = 0; i < pages; i++) equal += range.page(i) == range.value ? 1 : 0;
  return equal;
}

}  // namespace

extern "C" void guest_main(const uint8_t*) {
  Range range;
  bool mapped = false;
  report(kReady, kDirty);
  for (;;) {
    uint32_t command = next_command(range.value);
    uint32_t value = value_of(command);
    switch (kind_of(command)) {
      case kPing: report(kAnswer, value); break;
      case kSetStart:
        if (!mapped) map_all_ram();
        mapped = true;
        range.start_page = value;
        report(kAnswer, value);
        break;
      case kSetStride:
        range.stride_pages = value;
        report(kAnswer, value);
        break;
      case kSetValue:
        range.value = value;
        report(kAnswer, value);
        break;
      case kWrite: report(kAnswer, write(range, value)); break;
      case kRead: report(kAnswer, static_cast<uint32_t>(ram_at(value * kPageBytes))); break;
      case kCount: report(kAnswer, count(range, value)); break;
      default: report(kFail, kUnknownCommand);
    }
  }
}
