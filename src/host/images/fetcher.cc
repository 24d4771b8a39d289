#include "host/images/fetcher.h"

#include <algorithm>

#include "base/log.h"

namespace ramet::host {
namespace {

// So many are proven one by one; for more the frame's own digest takes no longer.
constexpr uint64_t kFewBlocks = 8;
constexpr uint32_t kAllBlocks = ~uint32_t{0};

// Who reads a disk cannot do anything about damage: for them it is a disk that fails.
tl::unexpected<Error> as_disk_error(Error error) {
  if (error.kind() != ErrorKind::kCorrupt) return tl::unexpected<Error>(std::move(error));
  log_error("store: " + error.to_string());
  return fail(ErrorKind::kIo, error.message());
}

}  // namespace

Result<FrameCache::FramePtr> Fetcher::frame(chunk::FrameId id, image::BlockRange wanted) {
  TRY_ASSIGN(const chunk::FramePlace place, store_.index().frame(id));
  FrameCache::FramePtr frame;
  if (wanted.count <= kFewBlocks) {
    TRY_ASSIGN(frame, read(place, chunk::FrameProof::kCallers));
    if (!prove(id, *frame, wanted)) frame = nullptr;
  }
  if (!frame) {  // and who is damaged is mended now
    TRY_ASSIGN(frame, read(place, chunk::FrameProof::kOwnDigest));
    frame->proven_bits = kAllBlocks;
  }
  count(place);
  return frame;
}

bool Fetcher::prove(chunk::FrameId id, DecodedFrame& frame, image::BlockRange wanted) const {
  const uint64_t end = std::min<uint64_t>(wanted.end(), frame.plain.size() / chunk::kBlockBytes);
  for (uint64_t block = wanted.first; block < end; block++) {
    const uint32_t bit = uint32_t{1} << block;
    if (frame.proven_bits & bit) continue;
    const auto plain = std::span(frame.plain).subspan(block * chunk::kBlockBytes, chunk::kBlockBytes);
    if (!store_.is_block({id, static_cast<uint32_t>(block)}, plain)) return false;
    frame.proven_bits |= bit;
  }
  return true;
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
  TRY(read(place, chunk::FrameProof::kOwnDigest));
  return {};
}

Result<FrameCache::FramePtr> Fetcher::read(const chunk::FramePlace& place, chunk::FrameProof proof) {
  const auto frame = std::make_shared<DecodedFrame>();
  frame->plain.resize(place.entry.blocks * chunk::kBlockBytes);
  std::unique_ptr<chunk::FrameDecoder> decoder = take_decoder();
  const Status read = chunk::read_frame(store_.packs(), place.pack, place.entry, *decoder, frame->plain, proof);
  give_back(std::move(decoder));
  if (!read) return as_disk_error(read.error());
  return frame;
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
