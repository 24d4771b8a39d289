#include "host/admission.h"

#include <sys/statvfs.h>

#include <cstdlib>

#include "base/file.h"

namespace ramet::host {
namespace {

// "Name:   123 kB" in a /proc file, in bytes.
uint64_t kilobytes_line(const std::string& text, std::string_view name) {
  const size_t at = text.find(std::string("\n") + std::string(name));
  const size_t begin = at == std::string::npos ? (text.rfind(name, 0) == 0 ? 0 : std::string::npos) : at + 1;
  if (begin == std::string::npos) return 0;
  return std::strtoull(text.c_str() + begin + name.size(), nullptr, 10) << 10;
}

std::string mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

MemoryInfo read_memory_info() {
  const Result<std::string> text = read_file("/proc/meminfo", 64 << 10);
  if (!text) return {};
  return {kilobytes_line(*text, "MemTotal:"), kilobytes_line(*text, "MemAvailable:")};
}

uint64_t free_disk_bytes(const std::string& path) {
  struct statvfs v;
  if (::statvfs(path.c_str(), &v) < 0) return 0;
  return static_cast<uint64_t>(v.f_bavail) * v.f_frsize;
}

uint64_t anonymous_bytes(pid_t pid) {
  const Result<std::string> text = read_file("/proc/" + std::to_string(pid) + "/status", 64 << 10);
  return text ? kilobytes_line(*text, "RssAnon:") : 0;
}

Status Admission::check_disk(uint64_t bytes) const {
  const uint64_t free_bytes = free_disk_bytes(state_dir_);
  if (free_bytes >= limits_.disk_reserve_bytes + bytes) return {};
  return fail(ErrorKind::kNoSpace, mib(free_bytes) + " are free on the disk of " + state_dir_ + ", " + mib(bytes) +
                                       " are needed and " + mib(limits_.disk_reserve_bytes) + " are kept in reserve");
}

Result<Admission::Reservation> Admission::reserve(uint64_t memory_bytes, uint64_t disk_bytes) {
  TRY(check_disk(disk_bytes));
  const uint64_t promised = reserved_.fetch_add(memory_bytes);
  Reservation mine(&reserved_, memory_bytes);
  const uint64_t available = read_memory_info().available_bytes;
  if (available < promised + memory_bytes + limits_.memory_reserve_bytes)
    return fail(ErrorKind::kNoMemory, mib(available) + " of memory are available, " + mib(memory_bytes) + " are needed, " +
                                          mib(promised) + " are promised to others and " + mib(limits_.memory_reserve_bytes) +
                                          " are kept in reserve");
  return mine;
}

Status Admission::check_family(pid_t parent, uint32_t children, uint64_t used_bytes, uint64_t memory_max_bytes) {
  if (memory_max_bytes == 0) return {};
  const uint64_t own = anonymous_bytes(parent);
  const uint64_t needed = own + own / 4 + children * kMachineOverheadBytes + kFamilySlackBytes;
  if (used_bytes + needed <= memory_max_bytes) return {};
  return tl::unexpected<Error>(
      Error(ErrorKind::kNoMemory, "the family uses " + mib(used_bytes) + " of its " + mib(memory_max_bytes) + ", a fork into " +
                                      std::to_string(children) + " may need " + mib(needed) + " more")
          .with_hint("remove branches that are not needed, or start the daemon with a larger --family-memory-factor"));
}

}  // namespace ramet::host
