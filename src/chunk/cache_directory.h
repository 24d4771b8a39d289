// chunk/cache_directory.h - the files of a chunk cache: raw chunks, one file per digest, sparse where they are zero.
//
//   DIRECTORY/checked-BOOT/DIGEST      right as long as the host runs: written, or checked, since boot BOOT of it
//   DIRECTORY/unchecked/DIGEST         from an earlier boot: after a crash of the host its bytes may be anything
//
// Nothing is synced. A file is made under another name and renamed, so a process killed at any point leaves whole files; and
// what a crash of the host does to them does not matter, since every file of an earlier boot is checked before it is used.
// Not here: which chunks are kept (chunk_cache.h). Thread: every method from many threads, but not two of them for one digest,
// write() excepted. A resource; one process per directory, which a lock sees to.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet::chunk {

// What is believed of the files that are found when a cache is opened.
enum class Trust {
  kSameBoot,  // those of this boot of the host
  kVerify,    // none
};

class CacheDirectory {
 public:
  struct File {
    Digest digest;
    uint64_t bytes = 0;  // allocated on disk
    bool checked = false;
  };

  // Makes the directory if need be.   Errors: kConflict (another process has it open), by errno.
  static Result<std::unique_ptr<CacheDirectory>> open(const std::string& path, Trust trust);

  // Oldest first.
  Result<std::vector<File>> list() const;
  // A new file, which goes away with this unless publish() gives it its name.
  class Unfinished {
   public:
    Unfinished(Unfinished&& o) noexcept : path_(std::exchange(o.path_, {})), bytes_(o.bytes_) {}
    ~Unfinished();
    uint64_t bytes() const { return bytes_; }  // allocated on disk

   private:
    friend class CacheDirectory;
    explicit Unfinished(std::string path) : path_(std::move(path)) {}
    std::string path_;
    uint64_t bytes_ = 0;
  };
  // Errors: kNoSpace, by errno; nothing is left then.
  Result<Unfinished> write(std::span<const std::byte> chunk);
  Status publish(Unfinished file, const Digest& digest);

  // Read-only, its own open file description.   Errors: kNotFound, by errno.
  Result<UniqueFd> open_file(const File& file) const;
  // Whether the file's bytes have that digest.   Errors: kCorrupt, by errno.
  Status check(const File& file) const;
  // It was checked.   Errors: by errno.
  Status accept(File& file);
  Status remove(const File& file);

 private:
  CacheDirectory(std::string checked, std::string unchecked, UniqueFd lock)
      : checked_(std::move(checked)), unchecked_(std::move(unchecked)), lock_(std::move(lock)) {}
  std::string path_of(const File& file) const;

  const std::string checked_, unchecked_;
  const UniqueFd lock_;
  std::atomic<uint64_t> next_unfinished_{0};
};

}  // namespace ramet::chunk
