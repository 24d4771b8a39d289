#include "host/metering.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <sstream>
#include <vector>

#include "base/file.h"

namespace ramet::host {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kPresent = 1ull << 63, kSwapped = 1ull << 62, kFile = 1ull << 61, kExclusive = 1ull << 56;

struct Area {
  uint64_t begin = 0, end = 0, anonymous_bytes = 0;
};

// The areas of smaps that lie in the range and hold anonymous pages.
Result<std::vector<Area>> anonymous_areas(const std::string& proc, uint64_t begin, uint64_t end) {
  TRY_ASSIGN(const std::string text, read_file(proc + "/smaps", 256u << 20));
  std::vector<Area> out;
  Area area;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    uint64_t from = 0, to = 0, kb = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &from, &to) == 2)
      area = {from, to, 0};
    else if (std::sscanf(line.c_str(), "Anonymous: %" SCNu64 " kB", &kb) == 1 && kb != 0 && area.begin >= begin &&
             area.end <= end) {
      area.anonymous_bytes = kb << 10;
      out.push_back(area);
    }
  }
  return out;
}

Result<uint64_t> exclusive_bytes(int pagemap, const Area& area) {
  std::vector<uint64_t> entries(4096);
  uint64_t sum = 0;
  for (uint64_t at = area.begin; at < area.end;) {
    const uint64_t pages = std::min<uint64_t>(entries.size(), (area.end - at) / kPage);
    const ssize_t n = ::pread(pagemap, entries.data(), pages * 8, static_cast<off_t>(at / kPage * 8));
    if (n < 0) return fail_errno("read pagemap");
    if (n == 0) break;
    const size_t got = static_cast<size_t>(n) / 8;
    for (size_t i = 0; i < got; i++) {
      const uint64_t e = entries[i];
      if ((e & kPresent) && !(e & kSwapped) && !(e & kFile) && (e & kExclusive)) sum += kPage;
    }
    at += got * kPage;
  }
  return sum;
}

}  // namespace

Result<MemoryUse> measure_memory(pid_t pid, uint64_t ram_address, uint64_t ram_bytes) {
  const std::string proc = "/proc/" + std::to_string(pid);
  MemoryUse use;
  TRY_ASSIGN(const std::vector<Area> areas, anonymous_areas(proc, ram_address, ram_address + ram_bytes));
  TRY_ASSIGN(const UniqueFd pagemap, open_file(proc + "/pagemap", O_RDONLY));
  for (const Area& a : areas) {
    use.diverged_bytes += a.anonymous_bytes;
    TRY_ASSIGN(const uint64_t own, exclusive_bytes(pagemap.get(), a));
    use.own_bytes += own;
  }
  TRY_ASSIGN(const std::string rollup, read_file(proc + "/smaps_rollup", 64 << 10));
  const size_t at = rollup.find("Pss_Anon:");
  if (at != std::string::npos) use.share_bytes = std::strtoull(rollup.c_str() + at + 9, nullptr, 10) << 10;
  return use;
}

}  // namespace ramet::host
