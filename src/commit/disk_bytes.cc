#include "commit/disk_bytes.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/checked.h"

namespace ramet::commit {
namespace {

constexpr uint64_t kPieceBlocks = 32, kPieceBytes = kPieceBlocks * image::kBlockBytes;
constexpr size_t kMostPieces = 64;

}  // namespace

void DiskBytes::drop_oldest() {
  pieces_.erase(std::ranges::min_element(pieces_, {}, [](const auto& entry) { return entry.second.used; }));
}

Result<std::span<const std::byte>> DiskBytes::piece(uint64_t number) {
  if (const auto it = pieces_.find(number); it != pieces_.end()) {
    it->second.used = ++clock_;
    return std::span<const std::byte>(it->second.bytes);
  }
  const uint64_t first = number * kPieceBlocks, count = std::min(kPieceBlocks, source_.size_blocks() - first);
  std::vector<std::byte> bytes(count * image::kBlockBytes);
  const iovec to{bytes.data(), bytes.size()};
  TRY_ASSIGN(const bool read, source_.read({first, count}, {&to, 1}, image::Wait::kAllowed));
  if (!read) return fail(ErrorKind::kInternal, "a source that was allowed to wait did not");
  if (pieces_.size() >= kMostPieces) drop_oldest();
  Piece& kept = pieces_[number];
  kept = {std::move(bytes), ++clock_};
  return std::span<const std::byte>(kept.bytes);
}

Status DiskBytes::read(uint64_t offset, std::span<std::byte> out) {
  if (!range_within(offset, out.size(), size()))
    return fail(ErrorKind::kInvalid,
                std::to_string(out.size()) + " bytes at " + std::to_string(offset) + " of a disk of " + std::to_string(size()));
  while (!out.empty()) {
    const uint64_t within = offset % kPieceBytes;
    const size_t bytes = std::min<uint64_t>(out.size(), kPieceBytes - within);
    TRY_ASSIGN(const std::span<const std::byte> from, piece(offset / kPieceBytes));
    std::memcpy(out.data(), from.data() + within, bytes);
    offset += bytes;
    out = out.subspan(bytes);
  }
  return {};
}

}  // namespace ramet::commit
