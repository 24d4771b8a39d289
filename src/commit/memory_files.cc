#include "commit/memory_files.h"

#include <algorithm>

#include "base/checked.h"
#include "base/file.h"

namespace ramet::commit {

Status MemoryFiles::visit_own(const Visit& visit) const {
  for (const image::RamPiece& piece : zeros_.pieces())
    if (!piece.anonymous) TRY(visit(piece.offset, piece.length));
  return {};
}

Status MemoryFiles::read(uint64_t offset, std::span<std::byte> out) const {
  if (!range_within(offset, out.size(), size_bytes()))
    return fail(ErrorKind::kInvalid, std::to_string(out.size()) + " bytes at " + std::to_string(offset) + " of memory of " +
                                         std::to_string(size_bytes()));
  const uint64_t segment = image::segment_bytes(size_bytes());
  while (!out.empty()) {
    const std::span<std::byte> part = out.first(std::min<uint64_t>(out.size(), segment - offset % segment));
    TRY(pread_exact(files_[offset / segment % 2], part, offset));
    out = out.subspan(part.size());
    offset += part.size();
  }
  return {};
}

}  // namespace ramet::commit
