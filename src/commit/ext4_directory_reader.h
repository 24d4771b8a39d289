// commit/ext4_directory_reader.h - the names in directories of a foreign ext4 file system, checked, and counted over all
// directories that one reader reads. Thread: one.
#pragma once

#include "commit/ext4_disk.h"
#include "commit/image_limits.h"

namespace ramet::commit {

struct Ext4Name {
  std::string name;
  ext2_ino_t inode = 0;
};

class Ext4DirectoryReader {
 public:
  Ext4DirectoryReader(const Ext4Disk& disk, const ImageLimits& limits)
      : disk_(disk), files_left_(limits.max_files), metadata_left_(limits.max_metadata_bytes), limits_(limits) {}

  // Sorted, without `.` and `..`.   Errors: kInvalid (a name that none can have, one twice, over the limits), those of the
  // disk.
  Result<std::vector<Ext4Name>> read(ext2_ino_t directory, const std::string& path);

 private:
  Status take(std::string_view name, ext2_ino_t inode, const std::string& path, std::vector<Ext4Name>& names);

  const Ext4Disk& disk_;
  uint64_t files_left_, metadata_left_;
  const ImageLimits limits_;
};

}  // namespace ramet::commit
