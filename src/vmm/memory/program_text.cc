#include "vmm/memory/program_text.h"

#include <elf.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/checked.h"
#include "base/mapped_region.h"

extern "C" const Elf64_Ehdr __ehdr_start;  // from the linker

namespace ramet::vmm {
namespace {

constexpr uintptr_t kPage = 4096, kHugePage = 2 << 20;
constexpr int kMadvCollapse = 25;  // MADV_COLLAPSE, Linux 6.1

struct Range {
  uintptr_t start = 0, end = 0;
};
// The one segment with code, as the kernel mapped it.
// Safety: the linker puts the ELF header, with the program headers after it, at the start of the image.
Range text_segment() {
  const uintptr_t base = reinterpret_cast<uintptr_t>(&__ehdr_start);
  const Elf64_Phdr* const headers = reinterpret_cast<const Elf64_Phdr*>(base + __ehdr_start.e_phoff);
  for (int i = 0; i < __ehdr_start.e_phnum; i++)
    if (headers[i].p_type == PT_LOAD && (headers[i].p_flags & PF_X))
      return {base + headers[i].p_vaddr, base + headers[i].p_vaddr + headers[i].p_memsz};
  return {};
}

}  // namespace

void move_program_text_to_huge_pages() {
  const Range text = text_segment();
  const uintptr_t end = *align_up(text.end, kHugePage);
  if (text.start == 0 || !is_aligned(text.start, kHugePage)) return;  // not linked for it
  // The rest of the last huge page: ours from here on, or somebody else's already.
  const uintptr_t mapped_end = *align_up(text.end, kPage);
  if (mapped_end < end && ::mmap(reinterpret_cast<void*>(mapped_end), end - mapped_end, PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
    return;
  const size_t bytes = end - text.start;
  const Result<MappedRegion> room =
      MappedRegion::map(bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  if (!room) return;
  std::byte* const copy = reinterpret_cast<std::byte*>(*align_up(reinterpret_cast<uintptr_t>(room->data()), kHugePage));
  std::memcpy(copy, reinterpret_cast<const void*>(text.start), text.end - text.start);
  const bool huge = ::madvise(copy, bytes, MADV_HUGEPAGE) == 0 && ::madvise(copy, bytes, kMadvCollapse) == 0 &&
                    ::mprotect(copy, bytes, PROT_READ | PROT_EXEC) == 0;
  // Safety: code that is equal to what it replaces, in one system call, also under the feet of this very function.
  if (huge) ::mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<void*>(text.start));
}

}  // namespace ramet::vmm
