// chunk/chunk_cache.h - hot chunks as raw files, which many VMs read through descriptors: one file per digest, so they share
// its pages. One cache serves one dedup domain: whose digests may be asked for is the caller's business.
//
//   std::optional<ChunkCache::Lease> lease = cache.find(digest);
//   if (!lease) lease = cache.fill(digest, *store.get(digest));     // get() has checked the bytes
//   send(lease->fd()); lease->close_fd();                           // the receiver has its own; drop the lease when it is done
//
// Room is made by removing what was used least recently and has no lease. A leased file whose name is removed keeps its disk
// space until its readers are gone, so its bytes count until its last lease is. All sizes are allocated disk space. What the
// files survive: cache_directory.h. Not here: fetching chunks, who may have them.
// Thread: every method from many threads. A resource; must outlive its leases.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "base/digest.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "chunk/cache_directory.h"

namespace ramet::chunk {

class ChunkCache {
 public:
  struct Options {
    uint64_t max_bytes = 0;
    Trust trust = Trust::kSameBoot;
  };
  struct Usage {
    uint64_t bytes = 0;         // all that counts: files, leased ones without a name, files being written
    uint64_t chunks = 0;        // that can be found
    uint64_t leased_bytes = 0;  // cannot be given back now
  };
  class Lease;

  // Removes files until the rest fits.   Errors: kConflict (another process has it open), by errno.
  static Result<std::unique_ptr<ChunkCache>> open(const std::string& directory, Options options);

  // A file from an earlier boot of the host is checked first. If it has other bytes it is removed, and was never there.
  std::optional<Lease> find(const Digest& digest);
  // Requires: `chunk` has this digest.   Errors: kInvalid (size), kNoSpace (disk, or max_bytes where the rest is leased), by
  // errno; the cache is as before then, or smaller.
  Result<Lease> fill(const Digest& digest, std::span<const std::byte> chunk);
  // Nobody finds it any more; who has a lease reads on.
  void remove(const Digest& digest);
  Usage usage() const;

 private:
  // A chunk with a name or with leases. One that is being written has a lease and no name yet.
  struct Entry {
    CacheDirectory::File file;
    uint32_t leases = 0;
    bool named = false;
    std::list<std::shared_ptr<Entry>>::iterator idle_at;  // while it is in idle_
    std::mutex checking;                                  // held over the check: whoever else wants the chunk waits for it
  };
  using EntryPtr = std::shared_ptr<Entry>;  // owned by entries_ while it has a name, and by each of its leases

  ChunkCache(std::unique_ptr<CacheDirectory> directory, Options options)
      : options_(options), directory_(std::move(directory)) {}
  Status load();
  bool make_checked(const EntryPtr& entry);
  Result<Lease> opened(Lease lease);
  Result<Lease> reserve(const Digest& digest, uint64_t bytes);
  Result<CacheDirectory::Unfinished> write(std::span<const std::byte> chunk, uint64_t bytes);
  Result<EntryPtr> publish(const EntryPtr& ours, CacheDirectory::Unfinished file);
  void give_back(const EntryPtr& entry);

  // With mutex_ held:
  EntryPtr use(const EntryPtr& entry);
  void make_idle(const EntryPtr& entry);
  void forget(const EntryPtr& entry);
  void evict_until(uint64_t bytes);

  const Options options_;
  const std::unique_ptr<CacheDirectory> directory_;
  // Guards what follows, what the entries say, and every change of a name in the directory, so that all of them agree. Bytes
  // are read and written without it.
  mutable std::mutex mutex_;
  std::unordered_map<Digest, EntryPtr, DigestHash> entries_;  // that have a name
  std::list<EntryPtr> idle_;                                  // and no lease; the one used least recently first
  uint64_t bytes_ = 0, leased_bytes_ = 0;
};

// A use of a chunk: its bytes stay as long as this lives. A value that moves.
class ChunkCache::Lease {
 public:
  Lease(Lease&& o) noexcept : cache_(o.cache_), entry_(std::move(o.entry_)), fd_(std::move(o.fd_)) {}
  Lease& operator=(Lease&& o) noexcept;
  ~Lease();

  // Of the raw chunk, read-only, with an open file description that nobody else has.
  int fd() const { return fd_.get(); }
  // It was sent to whoever reads; the lease goes on.
  void close_fd() { fd_.reset(); }

 private:
  friend class ChunkCache;
  Lease(ChunkCache& cache, EntryPtr entry) : cache_(&cache), entry_(std::move(entry)) {}
  ChunkCache* cache_;
  EntryPtr entry_;
  UniqueFd fd_;
};

}  // namespace ramet::chunk
