// commit/ext4_content.h - where on the disk the content of an inode lies, and short contents whole. Crafted maps - of blocks
// that are not on the disk, out of order, or more than the disk has - are errors. Not here: names and attributes.
// Thread: one.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "commit/ext4_disk.h"
#include "commit/tar_writer.h"

namespace ramet::commit {

struct Ext4Inode {
  ext2_ino_t number = 0;
  ext2_inode_large raw{};

  // Safety: a large inode begins as a small one, and libext2fs takes it so.
  ext2_inode* small() { return reinterpret_cast<ext2_inode*>(&raw); }
  uint64_t bytes() const { return raw.i_size | uint64_t{raw.i_size_high} << 32; }
};
// Errors: kInvalid, those of the disk; so all of these.
Result<Ext4Inode> read_inode(const Ext4Disk& disk, ext2_ino_t number, std::string_view path);

// A part of a file that is no hole, and where it lies.
struct Ext4Run {
  ByteRange range;
  uint64_t disk_offset = 0;
};
// In the order of the file, none behind its end. Not for contents within an inode.
Status for_each_run(const Ext4Disk& disk, Ext4Inode& inode, std::string_view path,
                    const std::function<Status(const Ext4Run&)>& each);

bool is_within_inode(const Ext4Inode& inode);
// Of a file that is_within_inode().
Result<std::string> content_within(const Ext4Disk& disk, Ext4Inode& inode, std::string_view path);
// Of a symbolic link.
Result<std::string> target_of(const Ext4Disk& disk, Ext4Inode& inode, std::string_view path);

}  // namespace ramet::commit
