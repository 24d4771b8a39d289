#include "chunk/inspection.h"

namespace ramet::chunk {

void Inspection::inspect(const PackId& id) {
  report.packs++;
  const Result<PackTail> tail = read_whole(id);
  if (!tail) return note("pack " + to_hex(id), tail.error());
  for (const FrameEntry& entry : tail->frames) {
    report.frames++;
    plain_.resize(entry.blocks * kBlockBytes);
    const std::span<const std::byte> stored = std::span(bytes_).subspan(entry.offset, entry.stored_bytes);
    if (const Status good = decoder_.decode(entry, stored, plain_); !good)
      note("frame " + std::to_string(entry.id) + " in pack " + to_hex(id), good.error());
  }
}

void Inspection::inspect(const Digest& chunk) {
  report.chunks++;
  const Status good = store_.get(chunk, [&](size_t bytes) -> Result<std::span<std::byte>> {
    bytes_read += bytes;
    plain_.resize(bytes);
    return plain_;
  });
  if (!good) note("chunk " + chunk.to_hex(), good.error());
}

bool Inspection::is_gone(const PackId& id) const {
  const Result<bool> known = store_.index().has_pack(id);
  return known && !*known;
}

bool Inspection::is_gone(const Digest& chunk) const {
  const Result<bool> known = store_.index().has_chunk(chunk);
  return known && !*known;
}

Result<PackTail> Inspection::read_whole(const PackId& id) {
  TRY_ASSIGN(const uint64_t size, store_.packs().size_bytes(id));
  if (size > kMaxPackBytes)
    return fail(ErrorKind::kCorrupt,
                "pack " + to_hex(id) + " has " + std::to_string(size) + " bytes, more than " + std::to_string(kMaxPackBytes));
  bytes_.resize(size);
  TRY(store_.packs().read(id, 0, bytes_));
  bytes_read += size;
  return check_pack(bytes_, id);
}

}  // namespace ramet::chunk
