// commit/ext4_filler.h - puts a tree of files into an empty ext4 file system. Inside of ext4_image.h.
// Source: libext2fs of e2fsprogs. Thread: any; one call is one thread's.
#pragma once

#include "commit/archive.h"

namespace ramet::commit {

// The time that stands in the file system itself, so that the same tree gives the same bytes. Files have their own.
inline constexpr int64_t kEpochSeconds = 1'700'000'000;

// Errors: kInvalid (no room, attributes that do not fit), kNoSpace, kIo.
Status fill_ext4(const FileTree& tree, const Spool& spool, const std::string& image_path);

}  // namespace ramet::commit
