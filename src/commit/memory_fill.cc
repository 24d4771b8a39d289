#include "commit/memory_fill.h"

#include <sys/stat.h>

#include "base/file.h"
#include "commit/in_order.h"

namespace ramet::commit {
namespace {

using image::kBlockBytes;

constexpr uint64_t kChunk = image::chunk_blocks(image::ImageKind::kMemory) * kBlockBytes;

struct ChunkWork {
  uint64_t offset = 0;
  int file = -1;
  Digest name;

  Status status;
  std::vector<std::byte> plain = std::vector<std::byte>(kChunk);
};

Status fill_chunk(const chunk::Store& store, ChunkWork& work) {
  if (work.name == image::kZeros)
    std::ranges::fill(work.plain, std::byte{0});
  else
    TRY(store.get(work.name, [&](size_t bytes) -> Result<std::span<std::byte>> {
      if (bytes == kChunk) return std::span(work.plain);
      return fail(ErrorKind::kCorrupt, "a chunk of memory has " + std::to_string(bytes) + " bytes");
    }));
  return pwrite_all(work.file, work.plain, work.offset);
}

Status check_file(int file, uint64_t bytes) {
  struct stat st;
  if (::fstat(file, &st) < 0) return fail_errno("size of a memory file");
  if (st.st_blocks == 0 && static_cast<uint64_t>(st.st_size) == bytes) return {};
  return fail(ErrorKind::kInvalid, "a memory file of " + std::to_string(st.st_size) + " bytes with " +
                                       std::to_string(st.st_blocks * 512) + " in it; expected an empty one of " +
                                       std::to_string(bytes));
}

class Fill {
 public:
  Fill(image::Manifest& manifest, const chunk::Store& store, uint64_t total_bytes, const OnProgress& progress)
      : manifest_(manifest),
        total_bytes_(total_bytes),
        progress_(progress),
        work_(threads_beside_this_one(), [&store](ChunkWork& work) { work.status = fill_chunk(store, work); }) {}

  Status add(uint64_t offset, int file) {
    while (work_.size() >= 2 * (threads_beside_this_one() + 1)) TRY(settle_oldest());
    std::unique_ptr<ChunkWork> work = spare_ ? std::move(spare_) : std::make_unique<ChunkWork>();
    work->offset = offset;
    work->file = file;
    TRY_ASSIGN(work->name, manifest_.chunk(offset / kChunk));
    work_.give(std::move(work));
    return {};
  }
  Status finish() {
    while (work_.size() > 0) TRY(settle_oldest());
    return {};
  }

 private:
  Status settle_oldest() {
    std::unique_ptr<ChunkWork> work = work_.take();
    TRY(work->status);
    done_bytes_ += kChunk;
    if (progress_) progress_({done_bytes_, total_bytes_});
    spare_ = std::move(work);
    return {};
  }

  image::Manifest& manifest_;
  const uint64_t total_bytes_;
  uint64_t done_bytes_ = 0;
  const OnProgress& progress_;
  std::unique_ptr<ChunkWork> spare_;
  InOrder<ChunkWork> work_;  // last: its threads end before the rest
};

// Nothing of the image may be missing in the files because a map said so.
Status check_zeros(image::Manifest& manifest, const image::RamPiece& piece) {
  for (uint64_t chunk = piece.offset / kChunk; chunk < (piece.offset + piece.length) / kChunk; chunk++) {
    TRY_ASSIGN(const Digest name, manifest.chunk(chunk));
    if (name != image::kZeros)
      return fail(ErrorKind::kInvalid,
                  "the map says that chunk " + std::to_string(chunk) + " of memory is zero, and it is not");
  }
  return {};
}

}  // namespace

Status fill_memory(image::Manifest& manifest, const chunk::Store& store, const image::ZeroMap& zeros, int even, int odd,
                   const OnProgress& progress) {
  if (manifest.root().kind != image::ImageKind::kMemory || manifest.root().blocks * kBlockBytes != zeros.ram_bytes())
    return fail(ErrorKind::kInvalid, "an image of " + std::to_string(manifest.root().blocks) + " blocks is not memory of " +
                                         std::to_string(zeros.ram_bytes()) + " bytes");
  for (const int file : {even, odd}) TRY(check_file(file, zeros.ram_bytes()));
  const std::vector<image::RamPiece> pieces = zeros.pieces();
  uint64_t total_bytes = 0;
  for (const image::RamPiece& piece : pieces) {
    if (piece.anonymous)
      TRY(check_zeros(manifest, piece));
    else
      total_bytes += piece.length;
  }
  Fill fill(manifest, store, total_bytes, progress);
  for (const image::RamPiece& piece : pieces)
    for (uint64_t at = 0; !piece.anonymous && at < piece.length; at += kChunk)
      TRY(fill.add(piece.offset + at, piece.file == 0 ? even : odd));
  return fill.finish();
}

}  // namespace ramet::commit
