#include "chunk/tiered_storage.h"

#include <algorithm>

#include "base/crc32c.h"
#include "base/digest.h"
#include "base/mapped_region.h"

namespace ramet::chunk {
namespace {

// Page-aligned, as write() wants it.
Result<MappedRegion> read_whole(const PackStorage& storage, const PackId& id) {
  TRY_ASSIGN(const uint64_t bytes, storage.size_bytes(id));
  if (bytes < kPackHeaderBytes + kPackFooterBytes || bytes > kMaxPackBytes || bytes % kPackAlignment != 0)
    return fail(ErrorKind::kCorrupt, "pack " + to_hex(id) + " has " + std::to_string(bytes) + " bytes");
  TRY_ASSIGN(MappedRegion region, MappedRegion::map(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS));
  TRY(storage.read(id, 0, region.bytes()));
  return region;
}

Status check_whole(const PackId& id, std::span<const std::byte> bytes) {
  TRY_ASSIGN(const PackHeader header, decode_pack_header(bytes.first<kPackHeaderBytes>()));
  TRY_ASSIGN(const PackFooter footer, decode_pack_footer(bytes.last<kPackFooterBytes>(), bytes.size()));
  if (header.id != id || footer.id != id || crc32c(bytes.data(), bytes.size() - kPackFooterBytes) != footer.body_crc)
    return fail(ErrorKind::kCorrupt, "pack " + to_hex(id) + " does not have its checksum");
  return {};
}

}  // namespace

Status TieredStorage::write(const PackId& id, std::span<const std::byte> bytes) { return local_.write(id, bytes); }

Status TieredStorage::read(const PackId& id, uint64_t offset, std::span<std::byte> out) const {
  Status done = local_.read(id, offset, out);
  if (done || done.error().kind() != ErrorKind::kNotFound) return done;
  return remote_.read(id, offset, out);
}

Result<uint64_t> TieredStorage::size_bytes(const PackId& id) const {
  Result<uint64_t> bytes = local_.size_bytes(id);
  if (bytes || bytes.error().kind() != ErrorKind::kNotFound) return bytes;
  return remote_.size_bytes(id);
}

Status TieredStorage::remove(const PackId& id) {
  {
    const std::lock_guard lock(mutex_);
    uploaded_now_.erase(id);
  }
  TRY(local_.remove(id));
  return remote_.remove(id);
}

Result<std::vector<PackId>> TieredStorage::list() const {
  TRY_ASSIGN(std::vector<PackId> all, local_.list());
  TRY_ASSIGN(const std::vector<PackId> remote, remote_.list());
  all.insert(all.end(), remote.begin(), remote.end());
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

Result<std::vector<PackId>> TieredStorage::waiting() const {
  TRY_ASSIGN(std::vector<PackId> local, local_.list());
  if (local.empty()) return local;
  TRY_ASSIGN(std::vector<PackId> remote, remote_.list());
  std::ranges::sort(remote);
  std::erase_if(local, [&](const PackId& id) { return std::ranges::binary_search(remote, id); });
  return local;
}

Status TieredStorage::upload() {
  const std::lock_guard one_uploads(uploading_);
  TRY_ASSIGN(const std::vector<PackId> packs, waiting());
  for (const PackId& id : packs) TRY(upload_one(id));
  return {};
}

Status TieredStorage::upload_one(const PackId& id) {
  {
    const std::lock_guard lock(mutex_);
    uploaded_now_.insert(id);
  }
  Result<MappedRegion> pack = read_whole(local_, id);
  Status done = pack ? check_whole(id, pack->bytes()) : tl::unexpected<Error>(std::move(pack).error());
  if (done) done = remote_.write(id, pack->bytes());
  bool was_removed = false;
  {
    const std::lock_guard lock(mutex_);
    was_removed = uploaded_now_.erase(id) == 0;
  }
  if (was_removed) return remote_.remove(id);
  return done;
}

Status TieredStorage::drop_local(const PackId& id) {
  TRY_ASSIGN(const uint64_t bytes, local_.size_bytes(id));
  const Result<uint64_t> remote_bytes = remote_.size_bytes(id);
  if (!remote_bytes && remote_bytes.error().kind() != ErrorKind::kNotFound) return tl::unexpected<Error>(remote_bytes.error());
  if (!remote_bytes || *remote_bytes != bytes)
    return fail(ErrorKind::kConflict, "pack " + to_hex(id) + " is not in the remote: it cannot be dropped here");
  return local_.remove(id);
}

bool TieredStorage::is_whole_locally(const PackId& id) const {
  const Result<MappedRegion> pack = read_whole(local_, id);
  return pack && check_whole(id, pack->bytes());
}

// Between its removal and the new copy's arrival, readers and a crash find the pack in the remote.
Status TieredStorage::refetch(const PackId& id) {
  const std::lock_guard one_fetches(refetching_);
  if (is_whole_locally(id)) return {};
  TRY_ASSIGN(const MappedRegion pack, read_whole(remote_, id));
  TRY(check_whole(id, pack.bytes()));
  TRY(local_.remove(id));
  Status kept = local_.write(id, pack.bytes());
  if (!kept && kept.error().kind() == ErrorKind::kNoSpace) return {};  // it is read there from now on
  return kept;
}

}  // namespace ramet::chunk
