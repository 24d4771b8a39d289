// commit/ext4_disk.h - the ext4 file system of a disk, open for reading by libext2fs, whose every read comes through here: from
// any source of blocks, and counted, so that a crafted file system cannot send it around for ever. The disk is foreign: this is
// for a process that can be lost (commit/tar_export.h). Not here: what the files are (ext4_walk.h).
// Thread: one. A resource; must not outlive its disk.
#pragma once

#include <ext2fs/ext2fs.h>

#include <memory>
#include <optional>
#include <string_view>

#include "commit/disk_bytes.h"

namespace ramet::commit {

class Ext4Disk {
 public:
  // Errors: kInvalid (no ext4 file system, one that needs its journal, one that contradicts itself), those of the disk.
  static Result<std::unique_ptr<Ext4Disk>> open(DiskBytes& disk, uint64_t most_reads);
  ~Ext4Disk();
  Ext4Disk(const Ext4Disk&) = delete;
  Ext4Disk& operator=(const Ext4Disk&) = delete;

  ext2_filsys fs() const { return fs_; }
  DiskBytes& disk() const { return disk_; }
  // What libext2fs answered about `what`; the disk's own error, where it was one.
  tl::unexpected<Error> failed(errcode_t error, std::string_view what) const;

 private:
  friend struct Ext4Io;
  Ext4Disk(DiskBytes& disk, uint64_t most_reads) : disk_(disk), reads_left_(most_reads) {}
  Status check_superblock();

  DiskBytes& disk_;
  ext2_filsys fs_ = nullptr;
  uint64_t reads_left_;
  std::optional<Error> error_;  // of the disk, or of going around
};

// What all messages about such file systems end with.
tl::unexpected<Error> broken(std::string_view path, const std::string& reason);

#define TRY_EXT4(disk, call, path)                                                                     \
  do {                                                                                                 \
    if (const errcode_t ramet_error_ = (call); ramet_error_) return (disk).failed(ramet_error_, path); \
  } while (0)

}  // namespace ramet::commit
