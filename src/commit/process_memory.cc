#include "commit/process_memory.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/file.h"

namespace ramet::commit {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAddresses = 1ull << 56;  // of user space, with five levels of page tables
// Documentation/admin-guide/mm/pagemap.rst
constexpr uint64_t kPresent = 1ull << 63, kSwapped = 1ull << 62, kFile = 1ull << 61;
constexpr size_t kEntriesAtOnce = 8192;

bool is_own(uint64_t entry) { return (entry & (kPresent | kSwapped)) != 0 && (entry & kFile) == 0; }

tl::unexpected<Error> has_ended() { return fail(ErrorKind::kUnavailable, "the process whose memory is read has ended"); }

bool ended(int pidfd) {
  pollfd p{.fd = pidfd, .events = POLLIN, .revents = 0};
  return ::poll(&p, 1, 0) != 0;
}

// Once an address space is gone its files end where they are read.
Status read_all(int file, std::span<std::byte> out, uint64_t offset) {
  while (!out.empty()) {
    const ssize_t n = ::pread(file, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read memory of a process at " + std::to_string(offset));
    if (n == 0) return has_ended();
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Result<UniqueFd> open_of(const ProcessMemory::Place& place, const char* name) {
  Result<UniqueFd> file = open_file("/proc/" + std::to_string(place.pid) + "/" + name, O_RDONLY);
  if (!file && (file.error().err() == ENOENT || file.error().err() == ESRCH)) return has_ended();
  return file;
}

}  // namespace

Result<ProcessMemory> ProcessMemory::open(const Place& place) {
  if (!is_aligned(place.address, kPage) || !is_aligned(place.size_bytes, kPage) ||
      !range_within(place.address, place.size_bytes, kAddresses))
    return fail(ErrorKind::kInvalid, "memory of " + std::to_string(place.size_bytes) + " bytes at " +
                                         std::to_string(place.address) + " of a process");
  TRY_ASSIGN(UniqueFd memory, open_of(place, "mem"));
  TRY_ASSIGN(UniqueFd pages, open_of(place, "pagemap"));
  if (ended(place.pidfd)) return has_ended();  // else the pid was still its own when the files were opened
  return ProcessMemory(place, std::move(memory), std::move(pages));
}

Status ProcessMemory::visit_own(const Visit& visit) const {
  const uint64_t first = address_ / kPage, count = size_bytes_ / kPage;
  std::vector<uint64_t> entries(std::min<uint64_t>(count, kEntriesAtOnce));
  uint64_t run = 0;  // pages of it before `page`
  const auto end_run = [&](uint64_t page) -> Status {
    const uint64_t length = std::exchange(run, 0) * kPage;
    return length == 0 ? Status() : visit(page * kPage - length, length);
  };
  for (uint64_t at = 0; at < count; at += entries.size()) {
    const std::span<uint64_t> part = std::span(entries).first(std::min<uint64_t>(count - at, entries.size()));
    TRY(read_all(pages_.get(), std::as_writable_bytes(part), (first + at) * sizeof(uint64_t)));
    for (size_t i = 0; i < part.size(); i++) {
      if (is_own(part[i]))
        run++;
      else
        TRY(end_run(at + i));
    }
  }
  return end_run(count);
}

Status ProcessMemory::read(uint64_t offset, std::span<std::byte> out) const {
  if (!range_within(offset, out.size(), size_bytes_))
    return fail(ErrorKind::kInvalid, std::to_string(out.size()) + " bytes at " + std::to_string(offset) + " of memory of " +
                                         std::to_string(size_bytes_));
  return read_all(memory_.get(), out, address_ + offset);
}

}  // namespace ramet::commit
