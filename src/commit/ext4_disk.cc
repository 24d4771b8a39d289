#include "commit/ext4_disk.h"

#include <cstring>

#include "base/checked.h"
#include "commit/file_tree.h"

namespace ramet::commit {

// How libext2fs reads. It opens by name alone, so the disk it is about to open stands in `opening` of its thread.
struct Ext4Io {
  static thread_local Ext4Disk* opening;

  static errcode_t open(const char* name, int, io_channel* out) {
    // Freed by close(), as libext2fs frees its own channels.
    io_channel channel = nullptr;
    if (const errcode_t error = ext2fs_get_memzero(sizeof(struct_io_channel), &channel)) return error;
    if (const errcode_t error = ext2fs_get_mem(std::strlen(name) + 1, &channel->name)) {
      ext2fs_free_mem(&channel);
      return error;
    }
    std::strcpy(channel->name, name);
    channel->magic = EXT2_ET_MAGIC_IO_CHANNEL;
    channel->manager = manager();
    channel->block_size = 1024;
    channel->refcount = 1;
    channel->private_data = opening;
    *out = channel;
    return 0;
  }
  static errcode_t close(io_channel channel) {
    if (--channel->refcount > 0) return 0;
    ext2fs_free_mem(&channel->name);
    ext2fs_free_mem(&channel);
    return 0;
  }
  static errcode_t set_blksize(io_channel channel, int bytes) {
    channel->block_size = bytes;
    return 0;
  }
  // A negative count is one of bytes.
  static errcode_t read(io_channel channel, unsigned long long block, int count, void* to) {
    Ext4Disk& disk = *static_cast<Ext4Disk*>(channel->private_data);
    const uint64_t block_bytes = static_cast<unsigned>(channel->block_size);
    const uint64_t bytes = count < 0 ? -static_cast<int64_t>(count) : static_cast<uint64_t>(count) * block_bytes;
    const std::optional<uint64_t> offset = checked_mul<uint64_t>(block, block_bytes);
    if (!offset || !range_within(*offset, bytes, disk.disk_.size())) return EXT2_ET_SHORT_READ;
    if (disk.reads_left_-- == 0) {
      disk.reads_left_ = 0;
      disk.error_ = Error(ErrorKind::kInvalid, "the file system goes around in circles");
      return EXT2_ET_CANCEL_REQUESTED;
    }
    const Status done = disk.disk_.read(*offset, {static_cast<std::byte*>(to), bytes});
    if (done) return 0;
    disk.error_ = done.error();
    return EXT2_ET_CANCEL_REQUESTED;
  }
  static errcode_t read_old(io_channel channel, unsigned long block, int count, void* to) {
    return read(channel, block, count, to);
  }
  static errcode_t flush(io_channel) { return 0; }
  static errcode_t no_write_old(io_channel, unsigned long, int, const void*) { return EXT2_ET_RO_FILSYS; }
  static errcode_t no_write(io_channel, unsigned long long, int, const void*) { return EXT2_ET_RO_FILSYS; }

  static io_manager manager() {
    static struct_io_manager made = [] {
      struct_io_manager m{};
      m.magic = EXT2_ET_MAGIC_IO_MANAGER;
      m.name = "disk of an image";
      m.open = open;
      m.close = close;
      m.set_blksize = set_blksize;
      m.read_blk = read_old;
      m.read_blk64 = read;
      m.write_blk = no_write_old;
      m.write_blk64 = no_write;
      m.flush = flush;
      return m;
    }();
    return &made;
  }
};
thread_local Ext4Disk* Ext4Io::opening = nullptr;

tl::unexpected<Error> broken(std::string_view path, const std::string& reason) {
  return tl::unexpected<Error>(
      Error(ErrorKind::kInvalid, "the file system is damaged: '" + shown(path) + "' " + reason)
          .with_hint("Export the image as raw and run `e2fsck -f` on the file, or look into it there."));
}

tl::unexpected<Error> Ext4Disk::failed(errcode_t error, std::string_view what) const {
  if (error_) return tl::unexpected<Error>(*error_);
  if (error == EXT2_ET_NO_MEMORY) return fail(ErrorKind::kNoMemory, "no memory for '" + shown(what) + "'");
  return broken(what, std::string("cannot be read: ") + ::error_message(error));
}

// What libext2fs would take memory for is checked before.
Status Ext4Disk::check_superblock() {
  constexpr uint64_t kBytes = sizeof(ext2_super_block);
  constexpr unsigned kMostLogBlockSize = 6;  // 64 KiB
  ext2_super_block super{};
  if (disk_.size() >= 2 * SUPERBLOCK_OFFSET) TRY(disk_.read(SUPERBLOCK_OFFSET, std::as_writable_bytes(std::span(&super, 1))));
  static_assert(kBytes == SUPERBLOCK_SIZE);
  if (super.s_magic != EXT2_SUPER_MAGIC)
    return tl::unexpected<Error>(
        Error(ErrorKind::kInvalid, "the disk does not begin with an ext4 file system, whose files could be exported")
            .with_hint("Export it as raw or qcow2; a disk with partitions, or another file system, is mounted from that."));
  const uint64_t blocks = super.s_blocks_count | uint64_t{super.s_blocks_count_hi} << 32;
  if (super.s_log_block_size > kMostLogBlockSize || blocks > disk_.size() >> (10 + super.s_log_block_size))
    return broken("/", "is larger than the disk");
  if (super.s_feature_incompat & EXT3_FEATURE_INCOMPAT_RECOVER)
    return tl::unexpected<Error>(
        Error(ErrorKind::kInvalid, "the file system was not unmounted: what it holds is partly in its journal only")
            .with_hint("Export the image as raw and run `e2fsck -p` on the file, or run a sandbox on it and commit its disk."));
  return {};
}

Result<std::unique_ptr<Ext4Disk>> Ext4Disk::open(DiskBytes& disk, uint64_t most_reads) {
  static const errcode_t messages = (initialize_ext2_error_table(), 0);
  static_cast<void>(messages);
  std::unique_ptr<Ext4Disk> out(new Ext4Disk(disk, most_reads));
  TRY(out->check_superblock());
  Ext4Io::opening = out.get();
  const errcode_t error = ext2fs_open("disk", EXT2_FLAG_64BITS, 0, 0, Ext4Io::manager(), &out->fs_);
  if (error == EXT2_ET_UNSUPP_FEATURE || error == EXT2_ET_RO_UNSUPP_FEATURE)
    return fail(ErrorKind::kInvalid, "the file system has features that are newer than our e2fsprogs");
  if (error) return out->failed(error, "/");
  return out;
}

Ext4Disk::~Ext4Disk() {
  if (fs_) ext2fs_free(fs_);
}

}  // namespace ramet::commit
