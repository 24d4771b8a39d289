#include "chunk/s3/s3_storage.h"

#include "base/digest.h"

namespace ramet::chunk::s3 {
namespace {

constexpr size_t kMaxListings = 10'000;  // of 1,000 packs each: a server that goes on and on ends here

template <class R>
R in_pack(R result, const char* what, const PackId& id) {
  if (result) return result;
  return tl::unexpected<Error>(std::move(result).error().with_context(std::string(what) + " pack " + to_hex(id)));
}

}  // namespace

Result<std::unique_ptr<S3Storage>> S3Storage::create(std::unique_ptr<Client> client, std::string prefix) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";
  if (prefix.empty() || prefix.starts_with('/') || prefix.ends_with('/') ||
      prefix.find_first_not_of(kAllowed) != std::string::npos)
    return fail(ErrorKind::kInvalid, "'" + prefix + "' is no prefix: letters, digits, - _ . and /, no / at its ends");
  return std::unique_ptr<S3Storage>(new S3Storage(std::move(client), prefix + "/packs/"));
}

std::string S3Storage::key_of(const PackId& id) const { return directory_ + to_hex(id); }

Status S3Storage::write(const PackId& id, std::span<const std::byte> bytes) {
  return in_pack(client_->put(key_of(id), bytes), "upload", id);
}

Status S3Storage::read(const PackId& id, uint64_t offset, std::span<std::byte> out) const {
  return in_pack(client_->get_range(key_of(id), offset, out), "fetch", id);
}

Result<uint64_t> S3Storage::size_bytes(const PackId& id) const {
  return in_pack(client_->size_bytes(key_of(id)), "look at", id);
}

Status S3Storage::remove(const PackId& id) { return in_pack(client_->remove(key_of(id)), "remove", id); }

Result<std::vector<PackId>> S3Storage::list() const {
  std::vector<PackId> out;
  std::string continuation;
  for (size_t listings = 0; listings < kMaxListings; listings++) {
    TRY_ASSIGN(ListedObjects listed, client_->list(directory_, continuation));
    for (const std::string& key : listed.keys) {
      PackId id;
      if (key.starts_with(directory_) && from_hex(std::string_view(key).substr(directory_.size()), id)) out.push_back(id);
    }
    if (listed.continuation.empty()) return out;
    if (listed.continuation == continuation) break;
    continuation = std::move(listed.continuation);
  }
  return fail(ErrorKind::kCorrupt, "the server's list of packs does not end");
}

}  // namespace ramet::chunk::s3
