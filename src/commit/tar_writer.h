// commit/tar_writer.h - a tar archive (POSIX 2001, as `tar --format=posix`), member by member: holes, extended attributes,
// POSIX ACLs and nanoseconds are kept. Not here: what the members are. Source: libarchive. Thread: one.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

struct archive;

namespace ramet::commit {

struct ByteRange {
  uint64_t offset = 0, bytes = 0;
  uint64_t end() const { return offset + bytes; }
};
struct AclEntry {
  bool is_default = false;       // of a directory: for what is made in it
  int tag = 0, permissions = 0;  // as ARCHIVE_ENTRY_ACL_*
  int id = -1;                   // of a user or group that is named
};
struct TarMember {
  std::string path;
  mode_t mode = 0;  // kind and permissions
  uint32_t uid = 0, gid = 0;
  int64_t mtime_s = 0;
  uint32_t mtime_ns = 0;
  unsigned device_major = 0, device_minor = 0;
  std::string symlink;               // where it leads
  std::string hard_link;             // the member that it is; nothing but its path is told then
  uint64_t bytes = 0;                // of a file
  std::vector<ByteRange> data = {};  // of these, those that are no holes, in order
  std::vector<std::pair<std::string, std::string>> xattrs = {};
  std::vector<AclEntry> acl = {};
};

class TarWriter {
 public:
  using Sink = std::function<Status(std::span<const std::byte>)>;
  // Errors: kNoMemory.
  static Result<std::unique_ptr<TarWriter>> open(Sink sink);
  ~TarWriter();
  TarWriter(const TarWriter&) = delete;
  TarWriter& operator=(const TarWriter&) = delete;

  // Errors: kInvalid (cannot be said in a tar), those of the sink.
  Status begin(const TarMember& member);
  // Of the file that was begun; what is left out before or behind is zeros.   Requires: in order, within the file.
  Status write(uint64_t offset, std::span<const std::byte> bytes);
  // The last member is whole.
  Status end();
  // Of all.
  Status close();

 private:
  explicit TarWriter(Sink sink) : sink_(std::move(sink)) {}
  static ssize_t forward(archive*, void* self, const void* bytes, size_t count);
  Status put_zeros(uint64_t until);
  Status put(std::span<const std::byte> bytes);
  tl::unexpected<Error> failed() const;

  const Sink sink_;
  archive* archive_ = nullptr;
  std::optional<Error> error_;  // of the sink
  std::string path_;            // of the member that is being written
  uint64_t bytes_ = 0, at_ = 0;
};

}  // namespace ramet::commit
