// commit/archive.h - tar archives and directories become a tree of files; contents go into a spool. Foreign bytes: what comes
// out of decompression is counted as it comes, and nothing is ever written under a name of the archive's. Refused, with the
// name of the member: device nodes, FIFOs, sockets, members over the limits, and what commit/file_tree.h refuses. Not taken
// over: POSIX ACLs, sparseness claims, attributes other than user.* and security.*. Source: libarchive, with tar alone and the
// compressions gzip, bzip2, xz, zstd. Thread: one at a time per tree.
#pragma once

#include <functional>
#include <span>

#include "base/output_file.h"
#include "commit/file_tree.h"

namespace ramet::commit {

// Contents of files, one behind the other, zeros as holes.
class Spool {
 public:
  Spool(OutputFile file, const ImageLimits& limits) : limits_(limits), file_(std::move(file)) {}
  int fd() const { return file_.fd(); }
  const ImageLimits& limits() const { return limits_; }
  uint64_t bytes() const { return reserved_bytes_; }

  // Room for a file's bytes; zeros until they are written.   Errors: kInvalid (the limit, with what is left of it).
  Result<SpoolRange> reserve(uint64_t bytes);
  // Errors: kInvalid (not in the range), kNoSpace, kIo, those of ImageLimits::admit.
  Status write(const SpoolRange& range, uint64_t offset, std::span<const std::byte> bytes);

 private:
  const ImageLimits limits_;
  OutputFile file_;
  uint64_t end_ = 0, reserved_bytes_ = 0;
  uint64_t admitted_bytes_ = 0;  // that can still be written before the next question
};

// A part of a file, borrowed.
struct FileRange {
  int fd = -1;
  uint64_t offset = 0, bytes = 0;
};

enum class Whiteouts {
  kOrdinary,  // files like any other
  kRemove,    // `.wh.NAME` and `.wh..wh..opq` take away what lower layers brought
};
using OnBytes = std::function<void(uint64_t read)>;  // of the archive, so far

// Errors: kInvalid (refused), kCorrupt (no tar, or a damaged one), kNoSpace, kIo.
Status read_tar(const FileRange& archive, Whiteouts whiteouts, FileTree& tree, Spool& spool, const OnBytes& on_bytes = {});
// Does not follow links, and stays on the file system of `path`.   Errors: kInvalid (refused), kNotFound, kPermission, kIo.
Status read_directory(const std::string& path, FileTree& tree, Spool& spool);

}  // namespace ramet::commit
