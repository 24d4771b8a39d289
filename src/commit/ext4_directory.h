// commit/ext4_directory.h - the entries of one new ext4 directory, one behind the other. Inside of ext4_filler.h.
// libext2fs's own ext2fs_link() looks through the whole directory for room each time, which a hostile image could make last for
// hours. Nobody else may change the directory's blocks meanwhile. Thread: one.
#pragma once

#include <ext2fs/ext2fs.h>

#include <string_view>
#include <vector>

namespace ramet::commit {

class Ext4Directory {
 public:
  Ext4Directory(ext2_filsys fs, ext2_ino_t inode) : fs_(fs), inode_(inode), block_(fs->blocksize) {}

  // Behind the last entry that there is.   Requires: first of all, once.
  errcode_t open();
  // `type`: EXT2_FT_*.   Requires: no such name yet, 1 to 255 bytes.
  errcode_t add(std::string_view name, ext2_ino_t inode, int type);
  errcode_t close();

 private:
  errcode_t load(blk64_t number);
  ext2_dir_entry* entry_at(size_t offset);

  ext2_filsys fs_;
  ext2_ino_t inode_;
  std::vector<char> block_;
  blk64_t number_ = 0, place_ = 0;
  size_t last_ = 0;  // where the last entry begins
};

}  // namespace ramet::commit
