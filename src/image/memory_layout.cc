#include "image/memory_layout.h"

#include <algorithm>

namespace ramet::image {

ZeroMap::ZeroMap(uint64_t ram_bytes) : ram_bytes_(ram_bytes), zero_(ram_bytes / kRamBlockBytes, false) {}

Result<ZeroMap> ZeroMap::decode(uint64_t ram_bytes, std::string_view bytes) {
  ZeroMap map(ram_bytes);
  if (bytes.size() != (map.blocks() + 7) / 8)
    return fail(ErrorKind::kCorrupt,
                "zero map has " + std::to_string(bytes.size()) + " bytes for " + std::to_string(map.blocks()) + " blocks");
  for (uint64_t b = 0; b < map.blocks(); b++) map.zero_[b] = (static_cast<unsigned char>(bytes[b / 8]) >> (b % 8) & 1) != 0;
  if (map.mapping_count() > map.mapping_limit())
    return fail(ErrorKind::kCorrupt, "zero map needs " + std::to_string(map.mapping_count()) + " mappings, the limit is " +
                                         std::to_string(map.mapping_limit()));
  return map;
}

std::string ZeroMap::encode() const {
  std::string bytes((blocks() + 7) / 8, '\0');
  for (uint64_t b = 0; b < blocks(); b++)
    if (zero_[b]) bytes[b / 8] = static_cast<char>(bytes[b / 8] | 1 << (b % 8));
  return bytes;
}

uint64_t ZeroMap::mapping_limit() const { return std::min(2 * segment_count(ram_bytes_), kMaxMappings); }

void ZeroMap::limit_mappings() {
  struct Run {
    uint64_t first, end;  // blocks
  };
  std::vector<Run> runs;
  for (uint64_t b = 0; b < blocks(); b++) {
    if (!zero_[b]) continue;
    const uint64_t first = b;
    while (b < blocks() && zero_[b]) b++;
    runs.push_back({first, b});
  }
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.end - a.first > b.end - b.first; });

  const uint64_t per_segment = segment_bytes(ram_bytes_) / kRamBlockBytes;
  const uint64_t limit = mapping_limit();
  uint64_t mappings = segment_count(ram_bytes_);
  for (const Run& run : runs) {
    const uint64_t full_first = (run.first + per_segment - 1) / per_segment;
    const uint64_t full_end = run.end == blocks() ? segment_count(ram_bytes_) : run.end / per_segment;
    const uint64_t full_segments = full_end > full_first ? full_end - full_first : 0;
    // Runs are maximal, so a run that ends inside a segment leaves a data piece there: only one strictly inside splits it.
    const bool splits = run.first / per_segment == (run.end - 1) / per_segment && run.first % per_segment != 0 &&
                        run.end % per_segment != 0 && run.end != blocks();
    const uint64_t after = mappings + 1 + (splits ? 1 : 0) - full_segments;
    if (after <= limit)
      mappings = after;
    else
      std::fill(zero_.begin() + static_cast<int64_t>(run.first), zero_.begin() + static_cast<int64_t>(run.end), false);
  }
}

std::vector<RamPiece> ZeroMap::pieces() const {
  std::vector<RamPiece> out;
  const uint64_t per_segment = segment_bytes(ram_bytes_) / kRamBlockBytes;
  for (uint64_t b = 0; b < blocks();) {
    const uint64_t first = b;
    const bool anonymous = zero_[b];
    do b++;
    while (b < blocks() && zero_[b] == anonymous && (anonymous || b % per_segment != 0));
    out.push_back(
        {first * kRamBlockBytes, (b - first) * kRamBlockBytes, anonymous, static_cast<uint32_t>(first / per_segment % 2)});
  }
  return out;
}

Result<ZeroMap> zero_map_of(Manifest& memory) {
  const ManifestRoot& root = memory.root();
  if (root.kind != ImageKind::kMemory || root.blocks % (kRamBlockBytes / kBlockBytes) != 0)
    return fail(ErrorKind::kInvalid, "an image of " + std::to_string(root.blocks) +
                                         " blocks is not memory of whole blocks of " + std::to_string(kRamBlockBytes) +
                                         " bytes");
  constexpr uint64_t kChunks = kRamBlockBytes / kBlockBytes / chunk_blocks(ImageKind::kMemory);
  ZeroMap map(root.blocks * kBlockBytes);
  for (uint64_t block = 0; block < map.blocks(); block++) {
    bool zero = true;
    for (uint64_t chunk = block * kChunks; zero && chunk < (block + 1) * kChunks; chunk++) {
      TRY_ASSIGN(const Digest name, memory.chunk(chunk));
      zero = name == kZeros;
    }
    map.set_zero(block, zero);
  }
  map.limit_mappings();
  return map;
}

}  // namespace ramet::image
