#include "commit/raw_image.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/file.h"
#include "base/mapped_region.h"
#include "image/zero_runs.h"

namespace ramet::commit {
namespace {

using image::kBlockBytes;
using image::kChunkBlocks;
using image::kChunkBytes;

// Where data begins at or after `offset`; nullopt: only a hole follows.
Result<std::optional<uint64_t>> next_data(int file, uint64_t offset) {
  const off_t at = ::lseek(file, static_cast<off_t>(offset), SEEK_DATA);
  if (at >= 0) return std::optional(static_cast<uint64_t>(at));
  if (errno == ENXIO) return std::optional<uint64_t>();
  if (errno == EINVAL) return std::optional(offset);  // the file system does not know: everything is data
  return fail_errno("look for data at " + std::to_string(offset));
}

// Holes of the file and what lies behind its end are zeros that nobody copies.
Status read_data(int file, uint64_t offset, uint64_t file_bytes, std::span<std::byte> chunk) {
  const uint64_t end = std::min(offset + chunk.size(), file_bytes);
  uint64_t at = offset;
  while (at < end) {
    TRY_ASSIGN(const std::optional<uint64_t> data, next_data(file, at));
    const uint64_t begin = std::min(data.value_or(end), end);
    std::ranges::fill(chunk.subspan(at - offset, begin - at), std::byte{0});
    const off_t hole = begin < end ? ::lseek(file, static_cast<off_t>(begin), SEEK_HOLE) : static_cast<off_t>(end);
    at = hole > static_cast<off_t>(begin) ? std::min(static_cast<uint64_t>(hole), end) : end;
    TRY(pread_exact(file, chunk.subspan(begin - offset, at - begin), begin));
  }
  std::ranges::fill(chunk.subspan(end - offset), std::byte{0});
  return {};
}

Result<Digest> chunk_of_parent(image::Manifest* parent, uint64_t number) {
  const bool has_one = parent && parent->root().kind == image::ImageKind::kDisk && number < parent->chunks();
  return has_one ? parent->chunk(number) : image::kZeros;
}

// Writes to a file go past the page cache while this lives, where its file system can do that: half of an export's processor
// time went into copying there, and what guests read would be driven out.
class PastPageCache {
 public:
  explicit PastPageCache(int file) : file_(file), flags_(::fcntl(file, F_GETFL)) { ::fcntl(file_, F_SETFL, flags_ | O_DIRECT); }
  ~PastPageCache() { ::fcntl(file_, F_SETFL, flags_); }
  PastPageCache(const PastPageCache&) = delete;
  PastPageCache& operator=(const PastPageCache&) = delete;

 private:
  const int file_, flags_;
};

}  // namespace

Result<image::Manifest> empty_manifest_for(int file) {
  TRY_ASSIGN(const uint64_t size, file_size(file));
  return image::Manifest::empty(image::ImageKind::kDisk, (size + kBlockBytes - 1) / kBlockBytes);
}

Result<uint64_t> import_raw_part(const RawPart& part, chunk::Batch& batch, image::Manifest& manifest, image::Manifest* parent,
                                 const OnProgress& progress) {
  TRY_ASSIGN(const uint64_t size, file_size(part.file));
  std::vector<std::byte> buffer(kChunkBytes);
  uint64_t read_bytes = 0;
  for (uint64_t number = part.first_chunk; number < manifest.chunks(); number++) {
    if (read_bytes >= part.most_bytes) return number;
    TRY_ASSIGN(const std::optional<uint64_t> data, next_data(part.file, number * kChunkBytes));
    if (!data) break;
    number = std::max(number, *data / kChunkBytes);
    const uint64_t offset = number * kChunkBytes, bytes = std::min<uint64_t>(kChunkBytes, size - offset);
    const std::span<std::byte> chunk = std::span(buffer).first((bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
    TRY(read_data(part.file, offset, size, chunk));
    TRY_ASSIGN(const Digest before, chunk_of_parent(parent, number));
    TRY_ASSIGN(const Digest name, put_chunk(batch, chunk, before));
    TRY(manifest.set(number, name));
    read_bytes += bytes;
    if (progress) progress({offset + bytes, size});
  }
  if (progress) progress({size, size});
  return manifest.chunks();
}

Result<image::ManifestRoot> import_raw(int file, chunk::Batch& batch, image::Manifest* parent, const OnProgress& progress) {
  TRY_ASSIGN(image::Manifest manifest, empty_manifest_for(file));
  TRY(import_raw_part({.file = file}, batch, manifest, parent, progress));
  TRY(seal_into(batch, manifest));
  return manifest.root();
}

Status export_raw(image::Manifest& manifest, const chunk::Store& store, int file, const OnProgress& progress) {
  TRY_ASSIGN(const uint64_t before, file_size(file));
  if (before != 0) return fail(ErrorKind::kInvalid, "the file to export to has " + std::to_string(before) + " bytes already");
  const uint64_t size = manifest.root().blocks * kBlockBytes;
  if (::ftruncate(file, static_cast<off_t>(size)) < 0)
    return fail_errno("make the file " + std::to_string(size) + " bytes long");
  const uint64_t chunk_bytes = uint64_t{image::chunk_blocks(manifest.root().kind)} * kBlockBytes;
  TRY_ASSIGN(const MappedRegion buffer, MappedRegion::map(chunk_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS));
  const PastPageCache past(file);
  for (uint64_t number = 0; number < manifest.chunks(); number++) {
    TRY_ASSIGN(const Digest name, manifest.chunk(number));
    if (name == image::kZeros) continue;
    const uint64_t offset = number * chunk_bytes;
    const std::span<std::byte> chunk = buffer.bytes().first(std::min(chunk_bytes, size - offset));
    const auto to_chunk = [&](size_t bytes) -> Result<std::span<std::byte>> {
      TRY(check_chunk_bytes(manifest.root(), number, bytes));
      return chunk;
    };
    TRY(store.get(name, to_chunk));
    TRY(image::write_nonzero(file, offset, chunk));
    if (progress) progress({offset + chunk.size(), size});
  }
  if (progress) progress({size, size});
  return {};
}

}  // namespace ramet::commit
