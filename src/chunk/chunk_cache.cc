#include "chunk/chunk_cache.h"

#include <cerrno>

#include "base/all_zero.h"
#include "base/log.h"
#include "chunk/recipe.h"

namespace ramet::chunk {
namespace {

uint64_t bytes_without_zeros(std::span<const std::byte> chunk) {
  uint64_t bytes = 0;
  for (size_t at = 0; at < chunk.size(); at += kBlockBytes)
    if (!all_zero(chunk.subspan(at, kBlockBytes))) bytes += kBlockBytes;
  return bytes;
}

bool disk_is_full(const Error& error) { return error.err() == ENOSPC || error.err() == EDQUOT; }

}  // namespace

ChunkCache::Lease& ChunkCache::Lease::operator=(Lease&& o) noexcept {
  std::swap(cache_, o.cache_);
  std::swap(entry_, o.entry_);
  std::swap(fd_, o.fd_);
  return *this;
}

ChunkCache::Lease::~Lease() {
  fd_.reset();  // first: its disk space is free only then
  if (entry_) cache_->give_back(entry_);
}

Result<std::unique_ptr<ChunkCache>> ChunkCache::open(const std::string& directory, Options options) {
  TRY_ASSIGN(std::unique_ptr<CacheDirectory> files, CacheDirectory::open(directory, options.trust));
  std::unique_ptr<ChunkCache> cache(new ChunkCache(std::move(files), options));
  TRY(cache->load());
  return cache;
}

Status ChunkCache::load() {
  TRY_ASSIGN(const std::vector<CacheDirectory::File> files, directory_->list());
  const std::lock_guard lock(mutex_);
  for (const CacheDirectory::File& file : files) {
    EntryPtr entry = std::make_shared<Entry>();
    entry->file = file;
    const auto [at, added] = entries_.emplace(file.digest, entry);
    if (!added) {
      TRY(directory_->remove(file));
      continue;
    }
    entry->named = true;
    bytes_ += file.bytes;
    make_idle(entry);
  }
  evict_until(options_.max_bytes);
  return {};
}

std::optional<ChunkCache::Lease> ChunkCache::find(const Digest& digest) {
  EntryPtr entry;
  {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(digest);
    if (it == entries_.end()) return std::nullopt;
    entry = use(it->second);
  }
  Lease lease(*this, entry);
  if (!make_checked(entry)) return std::nullopt;
  Result<Lease> done = opened(std::move(lease));
  return done ? std::optional(*std::move(done)) : std::nullopt;
}

bool ChunkCache::make_checked(const EntryPtr& entry) {
  const std::lock_guard one_checks(entry->checking);
  CacheDirectory::File file;
  {
    const std::lock_guard lock(mutex_);
    file = entry->file;
  }
  if (file.checked) return true;
  Status good = directory_->check(file);
  const std::lock_guard lock(mutex_);
  if (good) good = entry->named ? directory_->accept(entry->file) : fail(ErrorKind::kNotFound, "removed while it was checked");
  if (good) return true;
  log_warn("chunk cache: " + good.error().to_string());
  forget(entry);
  return false;
}

Result<ChunkCache::Lease> ChunkCache::opened(Lease lease) {
  Result<UniqueFd> fd = directory_->open_file({.digest = lease.entry_->file.digest, .checked = true});
  if (!fd) {
    const std::lock_guard lock(mutex_);
    if (fd.error().kind() == ErrorKind::kNotFound) forget(lease.entry_);
    return tl::unexpected<Error>(std::move(fd).error());
  }
  lease.fd_ = *std::move(fd);
  return lease;
}

Result<ChunkCache::Lease> ChunkCache::fill(const Digest& digest, std::span<const std::byte> chunk) {
  if (chunk.empty() || chunk.size() % kBlockBytes != 0 || chunk.size() > kMaxChunkBlocks * kBlockBytes)
    return fail(ErrorKind::kInvalid, "a chunk of " + std::to_string(chunk.size()) + " bytes for the cache; whole blocks of " +
                                         std::to_string(kBlockBytes) + ", at most " + std::to_string(kMaxChunkBlocks));
  if (std::optional<Lease> there = find(digest)) return *std::move(there);
  const uint64_t bytes = bytes_without_zeros(chunk);
  TRY_ASSIGN(const Lease ours, reserve(digest, bytes));
  TRY_ASSIGN(CacheDirectory::Unfinished file, write(chunk, bytes));
  TRY_ASSIGN(EntryPtr entry, publish(ours.entry_, std::move(file)));
  return opened(Lease(*this, std::move(entry)));
}

// A lease on a chunk without a name: whatever goes wrong, its bytes are given back with it.
Result<ChunkCache::Lease> ChunkCache::reserve(const Digest& digest, uint64_t bytes) {
  EntryPtr entry = std::make_shared<Entry>();
  entry->file = {.digest = digest, .bytes = bytes, .checked = true};
  const std::lock_guard lock(mutex_);
  if (leased_bytes_ + bytes > options_.max_bytes)
    return fail(ErrorKind::kNoSpace, "no room for " + std::to_string(bytes) + " bytes in a chunk cache of " +
                                         std::to_string(options_.max_bytes) + ", " + std::to_string(leased_bytes_) +
                                         " of them in use");
  evict_until(options_.max_bytes - bytes);
  bytes_ += bytes;
  return Lease(*this, use(entry));
}

Result<CacheDirectory::Unfinished> ChunkCache::write(std::span<const std::byte> chunk, uint64_t bytes) {
  for (;;) {
    Result<CacheDirectory::Unfinished> file = directory_->write(chunk);
    if (file || !disk_is_full(file.error())) return file;
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return file;
    evict_until(bytes_ - std::min(bytes_, bytes));
  }
}

// The entry that has the name afterwards, with one use more: ours, or that of somebody who was faster.
Result<ChunkCache::EntryPtr> ChunkCache::publish(const EntryPtr& ours, CacheDirectory::Unfinished file) {
  const std::lock_guard lock(mutex_);
  const Digest& digest = ours->file.digest;
  if (const auto it = entries_.find(digest); it != entries_.end()) return use(it->second);
  const uint64_t bytes = file.bytes();
  TRY(directory_->publish(std::move(file), digest));
  bytes_ += bytes - ours->file.bytes;
  leased_bytes_ += bytes - ours->file.bytes;
  ours->file.bytes = bytes;
  ours->named = true;
  entries_.emplace(digest, ours);
  evict_until(options_.max_bytes);
  return use(ours);
}

void ChunkCache::remove(const Digest& digest) {
  const std::lock_guard lock(mutex_);
  if (const auto it = entries_.find(digest); it != entries_.end()) forget(EntryPtr(it->second));
}

ChunkCache::Usage ChunkCache::usage() const {
  const std::lock_guard lock(mutex_);
  return {.bytes = bytes_, .chunks = entries_.size(), .leased_bytes = leased_bytes_};
}

ChunkCache::EntryPtr ChunkCache::use(const EntryPtr& entry) {
  if (entry->leases++ == 0) {
    leased_bytes_ += entry->file.bytes;
    if (entry->named) idle_.erase(entry->idle_at);
  }
  return entry;
}

void ChunkCache::give_back(const EntryPtr& entry) {
  const std::lock_guard lock(mutex_);
  if (--entry->leases != 0) return;
  leased_bytes_ -= entry->file.bytes;
  if (entry->named)
    make_idle(entry);
  else
    bytes_ -= entry->file.bytes;
}

void ChunkCache::make_idle(const EntryPtr& entry) { entry->idle_at = idle_.insert(idle_.end(), entry); }

void ChunkCache::forget(const EntryPtr& entry) {
  if (!entry->named) return;
  // A file that cannot be removed is found, and checked, by the next open().
  if (const Status removed = directory_->remove(entry->file); !removed) log_warn("chunk cache: " + removed.error().to_string());
  entry->named = false;
  entries_.erase(entry->file.digest);
  if (entry->leases != 0) return;
  bytes_ -= entry->file.bytes;
  idle_.erase(entry->idle_at);
}

void ChunkCache::evict_until(uint64_t bytes) {
  while (bytes_ > bytes && !idle_.empty()) forget(EntryPtr(idle_.front()));
}

}  // namespace ramet::chunk
