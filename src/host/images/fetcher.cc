#include "host/images/fetcher.h"

#include "base/log.h"

namespace ramet::host {
namespace {

// Who reads a disk cannot do anything about damage: for them it is a disk that fails.
tl::unexpected<Error> as_disk_error(Error error) {
  if (error.kind() != ErrorKind::kCorrupt) return tl::unexpected<Error>(std::move(error));
  log_error("store: " + error.to_string());
  return fail(ErrorKind::kIo, error.message());
}

}  // namespace

Result<std::vector<std::byte>> Fetcher::frame(chunk::FrameId id) {
  TRY_ASSIGN(const chunk::FramePlace place, store_.index().frame(id));
  TRY_ASSIGN(std::vector<std::byte> bytes, read(place));
  count(place);
  return bytes;
}

void Fetcher::count(const chunk::FramePlace& place) {
  counters_.frames++;
  counters_.fetched_bytes += place.entry.stored_bytes;
  const std::lock_guard lock(mutex_);
  if (seen_.insert(place.entry.id).second) counters_.distinct_bytes += place.entry.stored_bytes;
}

Status Fetcher::check_frame(chunk::FrameId id) {
  TRY_ASSIGN(const chunk::FramePlace place, store_.index().frame(id));
  counters_.checked_bytes += place.entry.stored_bytes;
  TRY(read(place));
  return {};
}

Result<std::vector<std::byte>> Fetcher::read(const chunk::FramePlace& place) {
  std::vector<std::byte> plain(place.entry.blocks * chunk::kBlockBytes);
  std::unique_ptr<chunk::FrameDecoder> decoder = take_decoder();
  const Status read = chunk::read_frame(store_.packs(), place.pack, place.entry, *decoder, plain);
  give_back(std::move(decoder));
  if (!read) return as_disk_error(read.error());
  return plain;
}

std::unique_ptr<chunk::FrameDecoder> Fetcher::take_decoder() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<chunk::FrameDecoder>();
  std::unique_ptr<chunk::FrameDecoder> decoder = std::move(idle_.back());
  idle_.pop_back();
  return decoder;
}

void Fetcher::give_back(std::unique_ptr<chunk::FrameDecoder> decoder) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(decoder));
}

Result<uint64_t> Fetcher::stored_bytes(const Digest& digest) const {
  TRY_ASSIGN(const chunk::Recipe recipe, store_.recipe(digest));
  uint64_t sum = 0;
  for (const chunk::FrameId id : recipe.frames()) {
    TRY_ASSIGN(const chunk::FramePlace place, store_.frame(id));
    sum += place.entry.stored_bytes;
  }
  return sum;
}

Result<std::vector<std::byte>> Fetcher::chunk(const Digest& digest) {
  Result<std::vector<std::byte>> bytes = store_.get(digest);
  if (!bytes) return as_disk_error(std::move(bytes).error());
  return bytes;
}

}  // namespace ramet::host
