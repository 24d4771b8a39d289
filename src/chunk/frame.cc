#include "chunk/frame.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace ramet::chunk {
namespace {
constexpr int kLevel = 1;
// From here on a hasher of blocks side by side is worth being made, and so is handing it blocks.
constexpr uint32_t kManyFrames = 8;
constexpr size_t kSomeBlocks = 8;
}  // namespace

void FrameEncoder::Free::operator()(ZSTD_CCtx_s* c) const { ::ZSTD_freeCCtx(c); }
void FrameDecoder::Free::operator()(ZSTD_DCtx_s* c) const { ::ZSTD_freeDCtx(c); }

FrameEncoder::FrameEncoder() : context_(::ZSTD_createCCtx()) {}
FrameEncoder::~FrameEncoder() = default;
FrameDecoder::FrameDecoder() : context_(::ZSTD_createDCtx()) {}
FrameDecoder::~FrameDecoder() = default;

FrameEntry FrameEncoder::encode(std::span<const std::byte> plain, std::span<const Digest> blocks, std::span<std::byte> out) {
  FrameEntry entry;
  entry.blocks = static_cast<uint32_t>(plain.size() / kBlockBytes);
  entry.digest = digest_of(blocks);
  // One byte less than the plain form: what does not shrink is not worth decoding.
  const size_t n = context_
                       ? ::ZSTD_compressCCtx(context_.get(), out.data(), plain.size() - 1, plain.data(), plain.size(), kLevel)
                       : size_t{0} - 1;
  const bool shrank = !::ZSTD_isError(n);
  if (!shrank) std::memcpy(out.data(), plain.data(), plain.size());
  entry.codec = shrank ? FrameCodec::kZstd : FrameCodec::kPlain;
  entry.stored_bytes = static_cast<uint32_t>(shrank ? n : plain.size());
  return entry;
}

Status FrameDecoder::decode(const FrameEntry& entry, std::span<const std::byte> stored, std::span<std::byte> plain,
                            FrameProof proof) {
  const auto corrupt = [&](const std::string& what) {
    return fail(ErrorKind::kCorrupt, "frame " + std::to_string(entry.id) + " " + what);
  };
  if (stored.size() != entry.stored_bytes)
    return corrupt("has " + std::to_string(stored.size()) + " bytes, not " + std::to_string(entry.stored_bytes));
  if (entry.codec == FrameCodec::kPlain) {
    if (stored.size() != plain.size()) return corrupt("is not as long as its blocks");
    std::copy(stored.begin(), stored.end(), plain.begin());
  } else {
    if (!context_) return fail(ErrorKind::kNoMemory, "no memory for a decompressor");
    const size_t n = ::ZSTD_decompressDCtx(context_.get(), plain.data(), plain.size(), stored.data(), stored.size());
    if (::ZSTD_isError(n)) return corrupt(std::string("cannot be decompressed: ") + ::ZSTD_getErrorName(n));
    if (n != plain.size())
      return corrupt("decompresses to " + std::to_string(n) + " bytes, not " + std::to_string(plain.size()));
  }
  if (proof == FrameProof::kOwnDigest && digest_of_plain(plain) != entry.digest) return corrupt("does not have its digest");
  return {};
}

Digest FrameDecoder::digest_of_plain(std::span<const std::byte> plain) {
  if (++checked_ < kManyFrames || plain.size() < kSomeBlocks * kBlockBytes) return digest_of(plain);
  if (!hasher_) hasher_.emplace();
  std::array<Digest, kFrameBlocks> room;
  const std::span<Digest> digests = std::span(room).first(plain.size() / kBlockBytes);
  return hasher_->digests(plain, digests) ? digest_of(std::span<const Digest>(digests)) : digest_of(plain);
}

std::span<std::byte> FrameDecoder::room_for(size_t stored_bytes) {
  if (room_.size() < stored_bytes) room_.resize(stored_bytes);
  return std::span(room_).first(stored_bytes);
}

}  // namespace ramet::chunk
