#include "vmm/memory/guest_ram.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/all_zero.h"
#include "base/file.h"
#include "base/seals.h"
#include "base/userfault.h"
#include "vmm/memory/page_map.h"

namespace ramet::vmm {
namespace {

constexpr int kMadvPopulateWrite = 23;  // MADV_POPULATE_WRITE

struct Reservation {
  MappedRegion region;
  std::byte* base;
};
// Address space only. 1 GiB alignment lets the second-level page tables use their largest entries; a small range needs 2 MiB.
Result<Reservation> reserve(uint64_t bytes, uint64_t alignment) {
  TRY_ASSIGN(MappedRegion region, MappedRegion::map(bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE));
  const uintptr_t start = reinterpret_cast<uintptr_t>(region.data());
  std::byte* const base = region.data() + ((alignment - start % alignment) % alignment);
  return Reservation{std::move(region), base};
}

Status check_size(uint64_t ram_bytes) {
  if (ram_bytes == 0 || ram_bytes % image::kRamBlockBytes != 0 || ram_bytes > (1ull << 40))
    return fail(ErrorKind::kInvalid,
                "guest memory of " + std::to_string(ram_bytes) + " bytes is not a positive multiple of 2 MiB");
  return {};
}

uint64_t reservation_alignment(uint64_t ram_bytes) { return ram_bytes >= (1ull << 30) ? 1ull << 30 : image::kRamBlockBytes; }

}  // namespace

Result<std::unique_ptr<GuestRam>> GuestRam::boot(uint64_t ram_bytes) {
  TRY(check_size(ram_bytes));
  TRY_ASSIGN(Reservation room, reserve(ram_bytes, reservation_alignment(ram_bytes)));
  void* const p =
      ::mmap(room.base, ram_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (p == MAP_FAILED) return fail_errno("map guest memory");
  if (::madvise(p, ram_bytes, MADV_NOHUGEPAGE) < 0 && errno != EINVAL) return fail_errno("advise guest memory");
  image::ZeroMap zeros(ram_bytes);
  for (uint64_t b = 0; b < zeros.blocks(); b++) zeros.set_zero(b, true);
  return std::unique_ptr<GuestRam>(new GuestRam(std::move(room.region), room.base, std::move(zeros), UniqueFd(), UniqueFd()));
}

Result<std::unique_ptr<GuestRam>> GuestRam::map_image(const image::ZeroMap& zeros, UniqueFd even, UniqueFd odd) {
  TRY(check_size(zeros.ram_bytes()));
  for (const UniqueFd* file : {&even, &odd}) {
    TRY_ASSIGN(const uint64_t size, file_size(file->get()));
    if (size < zeros.ram_bytes())
      return fail(ErrorKind::kCorrupt,
                  "memory file has " + std::to_string(size) + " bytes, the image needs " + std::to_string(zeros.ram_bytes()));
  }
  TRY_ASSIGN(Reservation room, reserve(zeros.ram_bytes(), reservation_alignment(zeros.ram_bytes())));
  std::unique_ptr<GuestRam> ram(new GuestRam(std::move(room.region), room.base, zeros, std::move(even), std::move(odd)));
  for (const image::RamPiece& piece : zeros.pieces()) TRY(ram->map_piece(piece, ram->base() + piece.offset));
  return ram;
}

Status GuestRam::map_piece(const image::RamPiece& piece, std::byte* at) const {
  const int flags = MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED;
  const int file = piece.file == 0 ? even_.get() : odd_.get();
  void* const p = piece.anonymous
                      ? ::mmap(at, piece.length, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0)
                      : ::mmap(at, piece.length, PROT_READ | PROT_WRITE, flags, file, static_cast<off_t>(piece.offset));
  if (p == MAP_FAILED) return fail_errno("map guest memory at offset " + std::to_string(piece.offset));
  if (!piece.anonymous) return {};
  const int advice = from_image() ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
  // A host kernel without huge pages answers EINVAL: 4 KiB pages then, which is correct too.
  if (::madvise(p, piece.length, advice) < 0 && errno != EINVAL) return fail_errno("advise guest memory");
  return {};
}

bool GuestRam::drop(GuestAddr address, uint64_t length) const {
  std::byte* p = memory_.resolve(address, length);
  if (!p) return false;
  while (length > 0) {
    const uint64_t offset = static_cast<uint64_t>(p - base());
    const uint64_t part = std::min(length, image::kRamBlockBytes - offset % image::kRamBlockBytes);
    if (zeros_.zero(offset / image::kRamBlockBytes)) ::madvise(p, part, MADV_DONTNEED);  // failing only costs memory
    p += part;
    length -= part;
  }
  return true;
}

Result<GuestRam::Captured> GuestRam::capture(int even, int odd) const {
  TRY_ASSIGN(const PageMap pages, PageMap::open());
  Captured out{image::ZeroMap(size_bytes()), 0};
  for (uint64_t b = 0; b < out.zeros.blocks(); b++) {
    const std::span<std::byte> block(base() + b * image::kRamBlockBytes, image::kRamBlockBytes);
    bool zero = true;
    if (zeros_.zero(b))  // only what was ever touched, so that looking does not allocate
      TRY(pages.for_each_anonymous(block, [&](std::span<std::byte> run) { zero = zero && all_zero(run); }));
    else
      zero = all_zero(block);
    out.zeros.set_zero(b, zero);
  }
  out.zeros.limit_mappings();
  for (const image::RamPiece& piece : out.zeros.pieces()) {
    if (piece.anonymous) continue;
    // Whole pieces, zeros included: a hole in the file would cost every later user twice.
    TRY(pwrite_all(piece.file == 0 ? even : odd, bytes_of(piece), piece.offset));
    out.stored_bytes += piece.length;
  }
  return out;
}

Status GuestRam::rebase() {
  TRY_ASSIGN(const PageMap pages, PageMap::open());
  for (const image::RamPiece& piece : zeros_.pieces()) TRY(rebase_piece(piece, pages));
  return {};
}

Status GuestRam::rebase_piece(const image::RamPiece& piece, const PageMap& pages) const {
  TRY_ASSIGN(const bool clean, pages.none_anonymous(bytes_of(piece)));
  if (clean) return {};
  TRY_ASSIGN(Reservation room, reserve(piece.length, image::kRamBlockBytes));
  TRY(map_piece(piece, room.base));
  TRY(pages.for_each_anonymous(bytes_of(piece), [&](std::span<std::byte> run) {
    if (piece.anonymous && all_zero(run)) return;
    std::byte* const to = room.base + (run.data() - (base() + piece.offset));
    // All faults of the run in one call; kernels before 5.14 take them one by one.
    static_cast<void>(::madvise(to, run.size(), kMadvPopulateWrite));
    std::memcpy(to, run.data(), run.size());
  }));
  // Safety: moves page tables only; the old mapping of the piece goes away in the same step.
  if (::mremap(room.base, piece.length, piece.length, MREMAP_MAYMOVE | MREMAP_FIXED, base() + piece.offset) == MAP_FAILED)
    return fail_errno("move rebased guest memory");
  return {};
}

Status GuestRam::watch_faults(int userfault) const {
  const std::vector<image::RamPiece> pieces = zeros_.pieces();
  // Neighbours together: the kernel takes a range across mappings.
  for (size_t first = 0, i = 0; i < pieces.size(); i++) {
    if (pieces[i].anonymous) {
      first = i + 1;
      continue;
    }
    if (i + 1 < pieces.size() && !pieces[i + 1].anonymous) continue;
    const uint64_t begin = pieces[first].offset, end = pieces[i].offset + pieces[i].length;
    TRY(ramet::watch_faults(userfault, {base() + begin, end - begin}));
    first = i + 1;
  }
  return {};
}

bool GuestRam::files_complete() const { return is_sealed(even_.get()) && is_sealed(odd_.get()); }

std::vector<int> GuestRam::descriptors() const {
  if (!from_image()) return {};
  return {even_.get(), odd_.get()};
}

Result<bool> GuestRam::is_untouched() const {
  TRY_ASSIGN(const PageMap pages, PageMap::open());
  return pages.none_anonymous({base(), size_bytes()});
}

}  // namespace ramet::vmm
