#include "commit/ext4_content.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "commit/file_tree.h"

namespace ramet::commit {
namespace {

constexpr uint64_t kMostFileBytes = 16ull << 40;  // that ext4 can have with blocks of 4 KiB
constexpr uint64_t kMostTargetBytes = 4095;       // PATH_MAX, without the end

// Runs of blocks become ranges of bytes, checked.
class Runs {
 public:
  Runs(const Ext4Disk& disk, const Ext4Inode& inode, std::string_view path, const std::function<Status(const Ext4Run&)>& each)
      : disk_(disk), file_bytes_(inode.bytes()), path_(path), each_(each) {}

  Status add(uint64_t first_block, uint64_t blocks, uint64_t disk_block) {
    const uint64_t block_bytes = disk_.fs()->blocksize;
    if (!range_within(disk_block, blocks, ext2fs_blocks_count(disk_.fs()->super)))
      return broken(path_, "has blocks that are not in the file system");
    if (first_block < next_block_) return broken(path_, "has blocks out of order");
    next_block_ = first_block + blocks;
    blocks_ += blocks;
    if (blocks_ > ext2fs_blocks_count(disk_.fs()->super)) return broken(path_, "has more blocks than the file system");
    const uint64_t offset = first_block * block_bytes;
    if (offset >= file_bytes_) return {};  // kept ready for a file that will grow
    return each_({{offset, std::min(blocks * block_bytes, file_bytes_ - offset)}, disk_block * block_bytes});
  }

 private:
  const Ext4Disk& disk_;
  const uint64_t file_bytes_;
  const std::string_view path_;
  const std::function<Status(const Ext4Run&)>& each_;
  uint64_t next_block_ = 0, blocks_ = 0;
};

struct FreeExtents {
  void operator()(ext2_extent_handle* handle) const { ext2fs_extent_free(handle); }
};

Status walk_extents(const Ext4Disk& disk, Ext4Inode& inode, std::string_view path, Runs& runs) {
  ext2_extent_handle_t opened = nullptr;
  TRY_EXT4(disk, ext2fs_extent_open2(disk.fs(), inode.number, inode.small(), &opened), path);
  const std::unique_ptr<ext2_extent_handle, FreeExtents> handle(opened);
  for (int move = EXT2_EXTENT_ROOT;; move = EXT2_EXTENT_NEXT) {
    ext2fs_extent extent{};
    const errcode_t error = ext2fs_extent_get(handle.get(), move, &extent);
    if (error == EXT2_ET_EXTENT_NO_NEXT) return {};
    if (error) return disk.failed(error, path);
    const bool has_data = (extent.e_flags & EXT2_EXTENT_FLAGS_LEAF) != 0 && (extent.e_flags & EXT2_EXTENT_FLAGS_UNINIT) == 0;
    if (has_data) TRY(runs.add(extent.e_lblk, extent.e_len, extent.e_pblk));
  }
}

// As ext2 and ext3 have it.
Status walk_map(const Ext4Disk& disk, Ext4Inode& inode, std::string_view path, Runs& runs) {
  struct Context {
    Runs& runs;
    Status done;
  } context{runs, {}};
  const auto each = [](ext2_filsys, blk64_t* block, e2_blkcnt_t number, blk64_t, int, void* self) {
    Context& c = *static_cast<Context*>(self);
    c.done = c.runs.add(static_cast<uint64_t>(number), 1, *block);
    return c.done ? 0 : BLOCK_ABORT;
  };
  const errcode_t error =
      ext2fs_block_iterate3(disk.fs(), inode.number, BLOCK_FLAG_READ_ONLY | BLOCK_FLAG_DATA_ONLY, nullptr, each, &context);
  if (!context.done) return context.done;
  return error ? Status(disk.failed(error, path)) : Status();
}

}  // namespace

Result<Ext4Inode> read_inode(const Ext4Disk& disk, ext2_ino_t number, std::string_view path) {
  Ext4Inode inode{.number = number};
  const int bytes = static_cast<int>(std::min<size_t>(sizeof inode.raw, EXT2_INODE_SIZE(disk.fs()->super)));
  TRY_EXT4(disk, ext2fs_read_inode_full(disk.fs(), number, inode.small(), bytes), path);
  if (inode.raw.i_links_count == 0) return broken(path, "is an inode that is not in use");
  if (inode.raw.i_flags & EXT4_ENCRYPT_FL)
    return fail(ErrorKind::kInvalid, "'" + shown(path) + "' is encrypted; such a file system goes out as raw or qcow2 only");
  return inode;
}

Status for_each_run(const Ext4Disk& disk, Ext4Inode& inode, std::string_view path,
                    const std::function<Status(const Ext4Run&)>& each) {
  if (inode.bytes() > kMostFileBytes)
    return broken(path, "has " + std::to_string(inode.bytes()) + " bytes, the limit is " + std::to_string(kMostFileBytes));
  Runs runs(disk, inode, path, each);
  return inode.raw.i_flags & EXT4_EXTENTS_FL ? walk_extents(disk, inode, path, runs) : walk_map(disk, inode, path, runs);
}

bool is_within_inode(const Ext4Inode& inode) { return inode.raw.i_flags & EXT4_INLINE_DATA_FL; }

Result<std::string> content_within(const Ext4Disk& disk, Ext4Inode& inode, std::string_view path) {
  size_t bytes = 0;
  TRY_EXT4(disk, ext2fs_inline_data_size(disk.fs(), inode.number, &bytes), path);
  if (bytes > disk.fs()->blocksize || inode.bytes() > bytes) return broken(path, "has more within its inode than fits");
  std::string out(bytes, '\0');
  TRY_EXT4(disk, ext2fs_inline_data_get(disk.fs(), inode.number, inode.small(), out.data(), &bytes), path);
  out.resize(inode.bytes());
  return out;
}

Result<std::string> target_of(const Ext4Disk& disk, Ext4Inode& inode, std::string_view path) {
  const uint64_t bytes = inode.bytes();
  if (bytes == 0 || bytes > kMostTargetBytes)
    return broken(path, "is a link whose target has " + std::to_string(bytes) + " bytes");
  std::string target(bytes, '\0');
  if (is_within_inode(inode)) {
    TRY_ASSIGN(target, content_within(disk, inode, path));
  } else if (ext2fs_is_fast_symlink(inode.small())) {
    if (bytes > sizeof inode.raw.i_block) return broken(path, "is a link with more within its inode than fits");
    std::memcpy(target.data(), inode.raw.i_block, bytes);
  } else {
    TRY(for_each_run(disk, inode, path, [&](const Ext4Run& run) {
      return disk.disk().read(run.disk_offset,
                              std::as_writable_bytes(std::span(target).subspan(run.range.offset, run.range.bytes)));
    }));
  }
  if (target.find('\0') != target.npos) return broken(path, "is a link to a name that ends before its end");
  return target;
}

}  // namespace ramet::commit
