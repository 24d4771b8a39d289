// commit/snapshot_catalogue.h - snapshots by id: one small file each, ID.snapshot in a directory (docs/formats/snapshot.md).
// Not here: whose they are, how long they are kept, what their details say. Thread: any; files change as a whole, and of two
// who change one at a time the last one wins.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "commit/snapshot_record.h"

namespace ramet::commit {

class SnapshotCatalogue {
 public:
  // Makes the directory if need be.   Errors: by errno.
  static Result<SnapshotCatalogue> open(const std::string& directory);

  // Durable when it returns. Until then nothing but the batch keeps what it names.
  // Errors: kInvalid (id, record), kExists, kNoSpace, kIo.
  Status add(std::string_view id, const SnapshotRecord& record);
  // Errors: kInvalid (id), kNotFound, kCorrupt, kUnsupported, kIo.
  Result<SnapshotRecord> get(std::string_view id) const;
  // Durable when it returns; the old ones or the new ones survive a crash.   Errors: as get() and add().
  Status replace_details(std::string_view id, std::string details);
  // What it named stays in the store until it is collected. One that cannot be read can go too.
  // Errors: kInvalid (id), kNotFound, kIo.
  Status remove(std::string_view id);
  // Sorted.   Errors: kIo.
  Result<std::vector<std::string>> ids() const;

 private:
  explicit SnapshotCatalogue(std::string directory) : directory_(std::move(directory)) {}
  std::string path_of(std::string_view id) const;
  Status write(std::string_view id, const SnapshotRecord& record);
  std::string directory_;
};

}  // namespace ramet::commit
