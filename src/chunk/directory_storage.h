// chunk/directory_storage.h - packs as files of one directory: ID.pack, ID in hexadecimal.
// Written past the page cache (O_DIRECT, where the file system can): 64 MiB of somebody's snapshot would drive out what guests
// read. Single frames are read the same way. A pack is made under another name, synced, then renamed; what a crash left under
// such a name goes away at the next open(). Thread: as PackStorage. A resource; one process per directory, which a lock sees
// to, and any number that only read.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/unique_fd.h"
#include "chunk/pack_storage.h"

namespace ramet::chunk {

class DirectoryStorage final : public PackStorage {
 public:
  // Makes the directory if need be.   Errors: kConflict (another process has it open), by errno.
  static Result<std::unique_ptr<DirectoryStorage>> open(const std::string& path);
  // Whoever else has it open; packs come and go meanwhile. write() and remove() are kPermission.   Errors: by errno.
  static Result<std::unique_ptr<DirectoryStorage>> open_to_read(const std::string& path);

  Status write(const PackId& id, std::span<const std::byte> bytes) override;
  Status read(const PackId& id, uint64_t offset, std::span<std::byte> out) const override;
  Result<uint64_t> size_bytes(const PackId& id) const override;
  Status remove(const PackId& id) override;
  Result<std::vector<PackId>> list() const override;

 private:
  DirectoryStorage(std::string path, UniqueFd directory, UniqueFd lock)
      : path_(std::move(path)), directory_(std::move(directory)), lock_(std::move(lock)) {}
  bool read_frame(const PackId& id, uint64_t offset, std::span<std::byte> out) const;
  using FilePtr = std::shared_ptr<const UniqueFd>;
  FilePtr file_for_frames(const PackId& id) const;
  Status remove_unfinished();
  Status check_may_change() const;
  Status sync() const;

  const std::string path_;
  const UniqueFd directory_;
  const UniqueFd lock_;  // none: opened to read
  mutable std::mutex mutex_;
  mutable std::map<PackId, FilePtr> files_;  // guarded by mutex_; for read_frame()
};

std::string pack_name(const PackId& id);

}  // namespace ramet::chunk
