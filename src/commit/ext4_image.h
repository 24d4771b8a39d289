// commit/ext4_image.h - a tree of files becomes a file with an ext4 file system: made empty by mke2fs, filled through
// libext2fs, so nothing is mounted, no privilege is needed, and owners are what the tree says. The same tree gives the same
// bytes. Thread: any; one call is one thread's.
#pragma once

#include "commit/archive.h"

namespace ramet::commit {

struct Ext4Options {
  uint64_t bytes = 0;         // of the file system; 0: what the tree needs, and room for as much again, at least 1 GiB
  std::string name = "root";  // label and UUID come from it
  std::chrono::seconds program_time{600};
};

// Requires: `image` is an empty file.   Errors: kInvalid (too small for the tree, attributes that do not fit), kUnavailable (no
// mke2fs), kNoSpace, kIo.
Status write_ext4(const FileTree& tree, const Spool& spool, int image, const Ext4Options& options);

}  // namespace ramet::commit
