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
  Result<std::vector<std::byte>> bytes = read_twice(place);
  if (!bytes) return as_disk_error(std::move(bytes).error());
  counters_.frames++;
  counters_.fetched_bytes += place.entry.stored_bytes;
  return bytes;
}

Result<std::vector<std::byte>> Fetcher::read(const chunk::FramePlace& place) const {
  std::vector<std::byte> plain(place.entry.blocks * chunk::kBlockBytes);
  chunk::FrameDecoder decoder;
  TRY(chunk::read_frame(store_.packs(), place.pack, place.entry, decoder, plain));
  return plain;
}

Result<std::vector<std::byte>> Fetcher::read_twice(const chunk::FramePlace& place) {
  Result<std::vector<std::byte>> bytes = read(place);
  if (bytes || bytes.error().kind() != ErrorKind::kCorrupt || !refetch_) return bytes;
  if (!refetch_(place.pack)) return bytes;
  counters_.refetched++;
  return read(place);
}

Result<uint64_t> Fetcher::stored_bytes(const Digest& digest) const {
  TRY_ASSIGN(const chunk::Recipe recipe, store_.index().recipe(digest));
  uint64_t sum = 0;
  for (const chunk::FrameId id : recipe.frames()) {
    TRY_ASSIGN(const chunk::FramePlace place, store_.index().frame(id));
    sum += place.entry.stored_bytes;
  }
  return sum;
}

Result<std::vector<std::byte>> Fetcher::chunk(const Digest& digest) {
  Result<std::vector<std::byte>> bytes = store_.get(digest);
  if (!bytes && bytes.error().kind() == ErrorKind::kCorrupt) {
    TRY_ASSIGN(const chunk::Recipe recipe, store_.index().recipe(digest));
    for (const chunk::FrameId id : recipe.frames()) TRY(frame(id));  // mends what can be mended
    bytes = store_.get(digest);
  }
  if (!bytes) return as_disk_error(std::move(bytes).error());
  return bytes;
}

}  // namespace ramet::host
