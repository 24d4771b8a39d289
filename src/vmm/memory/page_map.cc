#include "vmm/memory/page_map.h"

#include <vector>

#include "base/file.h"

namespace ramet::vmm {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kPresent = 1ull << 63, kSwapped = 1ull << 62,
                   kFile = 1ull << 61;  // Documentation/admin-guide/mm/pagemap.rst
constexpr size_t kEntriesPerRead = 8192;

bool is_anonymous(uint64_t entry) { return (entry & (kPresent | kSwapped)) != 0 && (entry & kFile) == 0; }

}  // namespace

Result<PageMap> PageMap::open() {
  TRY_ASSIGN(UniqueFd fd, open_file("/proc/self/pagemap", O_RDONLY));
  return PageMap(std::move(fd));
}

Status PageMap::for_each_anonymous(std::span<std::byte> range, const std::function<void(std::span<std::byte>)>& found) const {
  const uint64_t first_page = reinterpret_cast<uintptr_t>(range.data()) / kPage;
  const size_t pages = range.size() / kPage;
  std::vector<uint64_t> entries(std::min(pages, kEntriesPerRead));
  size_t run_start = 0, run_pages = 0;
  const auto flush = [&] {
    if (run_pages) found(range.subspan(run_start * kPage, run_pages * kPage));
    run_pages = 0;
  };
  for (size_t at = 0; at < pages; at += entries.size()) {
    const size_t count = std::min(pages - at, entries.size());
    const std::span<uint64_t> part(entries.data(), count);
    TRY(pread_exact(fd_.get(), std::as_writable_bytes(part), (first_page + at) * sizeof(uint64_t)));
    for (size_t i = 0; i < count; i++) {
      if (!is_anonymous(part[i])) {
        flush();
        continue;
      }
      if (run_pages == 0) run_start = at + i;
      run_pages++;
    }
  }
  flush();
  return {};
}

Result<bool> PageMap::none_anonymous(std::span<std::byte> range) const {
  bool none = true;
  TRY(for_each_anonymous(range, [&](std::span<std::byte>) { none = false; }));
  return none;
}

}  // namespace ramet::vmm
