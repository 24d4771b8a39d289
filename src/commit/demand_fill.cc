#include "commit/demand_fill.h"

#include <algorithm>
#include <span>

#include "base/file.h"

namespace ramet::commit {
namespace {

// Nothing of the image may be missing in the files because a map said so.
Status check_zeros(const std::vector<Digest>& names, const image::RamPiece& piece) {
  for (uint64_t chunk = piece.offset / DemandFill::kChunk; chunk < (piece.offset + piece.length) / DemandFill::kChunk; chunk++)
    if (names[chunk] != image::kZeros)
      return fail(ErrorKind::kInvalid,
                  "the map says that chunk " + std::to_string(chunk) + " of memory is zero, and it is not");
  return {};
}

}  // namespace

Result<std::unique_ptr<DemandFill>> DemandFill::make(image::Manifest& manifest, const chunk::Store& store,
                                                     const image::ZeroMap& zeros, int even, int odd,
                                                     const std::vector<uint32_t>& first) {
  const uint64_t ram_bytes = zeros.ram_bytes();
  if (manifest.root().kind != image::ImageKind::kMemory || manifest.root().blocks * image::kBlockBytes != ram_bytes)
    return fail(ErrorKind::kInvalid, "an image of " + std::to_string(manifest.root().blocks) + " blocks is not memory of " +
                                         std::to_string(ram_bytes) + " bytes");
  for (const int file : {even, odd}) {
    TRY_ASSIGN(const uint64_t size, file_size(file));
    if (size != ram_bytes)
      return fail(ErrorKind::kInvalid,
                  "a memory file of " + std::to_string(size) + " bytes; expected one of " + std::to_string(ram_bytes));
  }
  std::unique_ptr<DemandFill> out(new DemandFill(store, ram_bytes, even, odd));
  const uint64_t chunks = ram_bytes / kChunk;
  for (uint64_t i = 0; i < chunks; i++) {
    TRY_ASSIGN(const Digest name, manifest.chunk(i));
    out->names_.push_back(name);
  }
  out->states_.assign(chunks, kNoData);
  for (const image::RamPiece& piece : zeros.pieces()) {
    if (piece.anonymous) {
      TRY(check_zeros(out->names_, piece));
      continue;
    }
    const auto begin = out->states_.begin() + static_cast<ptrdiff_t>(piece.offset / kChunk);
    std::fill(begin, begin + static_cast<ptrdiff_t>(piece.length / kChunk), kMissing);
  }
  std::vector<bool> ordered(chunks, false);
  const auto take = [&](uint64_t chunk) {
    if (chunk >= chunks || ordered[chunk] || out->states_[chunk] == kNoData) return;
    ordered[chunk] = true;
    out->order_.push_back(static_cast<uint32_t>(chunk));
  };
  for (const uint32_t chunk : first) take(chunk);
  for (uint64_t chunk = 0; chunk < chunks; chunk++) take(chunk);
  out->missing_ = out->total_ = out->order_.size();
  return out;
}

Status DemandFill::check_present(size_t count) const {
  for (const uint32_t chunk : std::span(order_).first(std::min(count, order_.size()))) {
    if (names_[chunk] == image::kZeros) continue;
    TRY_ASSIGN(const bool there, store_.has(names_[chunk]));
    if (!there) return fail(ErrorKind::kNotFound, "chunk " + std::to_string(chunk) + " of memory is not in the store");
  }
  return {};
}

Status DemandFill::need(uint64_t offset) {
  if (offset >= ram_bytes_)
    return fail(ErrorKind::kInvalid, "byte " + std::to_string(offset) + " of memory of " + std::to_string(ram_bytes_));
  return fill(static_cast<uint32_t>(offset / kChunk), true);
}

Result<std::optional<uint64_t>> DemandFill::fill_next() {
  for (;;) {
    const size_t at = next_.fetch_add(1);
    if (at >= order_.size()) return std::optional<uint64_t>();
    const uint32_t chunk = order_[at];
    {
      const std::lock_guard lock(mutex_);
      if (states_[chunk] != kMissing) continue;
    }
    TRY(fill(chunk, false));
    return std::optional<uint64_t>(chunk);
  }
}

Status DemandFill::fill(uint32_t chunk, bool touched) {
  {
    std::unique_lock lock(mutex_);
    if (states_[chunk] == kNoData)
      return fail(ErrorKind::kInvalid, "chunk " + std::to_string(chunk) + " of memory holds no data of the image");
    if (touched && states_[chunk] != kThere && touched_.size() < kMaxTouched) touched_.push_back(chunk);
    changed_.wait(lock, [&] { return states_[chunk] != kFilling; });
    if (states_[chunk] == kThere) return {};
    states_[chunk] = kFilling;
  }
  const Status fetched = fetch(chunk);
  {
    const std::lock_guard lock(mutex_);
    states_[chunk] = fetched ? kThere : kMissing;
    if (fetched) missing_--;
  }
  changed_.notify_all();
  return fetched;
}

Status DemandFill::fetch(uint32_t chunk) {
  std::unique_ptr<std::byte[]> room;
  {
    const std::lock_guard lock(mutex_);
    if (!spare_rooms_.empty()) {
      room = std::move(spare_rooms_.back());
      spare_rooms_.pop_back();
    }
  }
  if (!room) room = std::make_unique_for_overwrite<std::byte[]>(kChunk);
  const std::span<std::byte> plain(room.get(), kChunk);
  if (names_[chunk] == image::kZeros)
    std::ranges::fill(plain, std::byte{0});
  else
    TRY(store_.get(names_[chunk], [&](size_t bytes) -> Result<std::span<std::byte>> {
      if (bytes == kChunk) return plain;
      return fail(ErrorKind::kCorrupt, "a chunk of memory has " + std::to_string(bytes) + " bytes");
    }));
  const uint64_t offset = chunk * kChunk;
  TRY(pwrite_all(files_[offset / image::segment_bytes(ram_bytes_) % 2], plain, offset));
  const std::lock_guard lock(mutex_);
  spare_rooms_.push_back(std::move(room));
  return {};
}

std::vector<uint32_t> DemandFill::touched() const {
  const std::lock_guard lock(mutex_);
  // Several may have waited for the same.
  std::vector<uint32_t> out;
  std::vector<bool> seen(names_.size(), false);
  for (const uint32_t chunk : touched_) {
    if (!seen[chunk]) out.push_back(chunk);
    seen[chunk] = true;
  }
  return out;
}

}  // namespace ramet::commit
