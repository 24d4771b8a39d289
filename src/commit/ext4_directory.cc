#include "commit/ext4_directory.h"

#include <cstring>

namespace ramet::commit {
namespace {

constexpr unsigned kEntryHeaderBytes = 8;

constexpr unsigned length_for(size_t name_bytes) { return (static_cast<unsigned>(name_bytes) + kEntryHeaderBytes + 3) / 4 * 4; }

}  // namespace

// Safety: blocks come checked from ext2fs_read_dir_block4(), entries begin at multiples of four within them.
ext2_dir_entry* Ext4Directory::entry_at(size_t offset) { return reinterpret_cast<ext2_dir_entry*>(block_.data() + offset); }

errcode_t Ext4Directory::open() {
  ext2_inode raw{};
  if (const errcode_t error = ext2fs_read_inode(fs_, inode_, &raw)) return error;
  return load(EXT2_I_SIZE(&raw) / fs_->blocksize - 1);
}

errcode_t Ext4Directory::load(blk64_t number) {
  number_ = number;
  if (const errcode_t error = ext2fs_bmap2(fs_, inode_, nullptr, nullptr, 0, number, nullptr, &place_)) return error;
  if (const errcode_t error = ext2fs_read_dir_block4(fs_, place_, block_.data(), 0, inode_)) return error;
  const size_t end = fs_->blocksize - (ext2fs_has_feature_metadata_csum(fs_->super) ? sizeof(ext2_dir_entry_tail) : 0);
  for (size_t at = 0; at < end;) {
    unsigned length = 0;
    if (const errcode_t error = ext2fs_get_rec_len(fs_, entry_at(at), &length)) return error;
    if (length < kEntryHeaderBytes) return EXT2_ET_DIR_CORRUPTED;
    last_ = at;
    at += length;
  }
  return 0;
}

errcode_t Ext4Directory::add(std::string_view name, ext2_ino_t inode, int type) {
  unsigned length = 0;
  if (const errcode_t error = ext2fs_get_rec_len(fs_, entry_at(last_), &length)) return error;
  unsigned used = entry_at(last_)->inode == 0 ? 0 : length_for(static_cast<size_t>(ext2fs_dirent_name_len(entry_at(last_))));
  if (length - used < length_for(name.size())) {
    if (const errcode_t error = close()) return error;
    if (const errcode_t error = ext2fs_expand_dir(fs_, inode_)) return error;
    if (const errcode_t error = load(number_ + 1)) return error;
    if (const errcode_t error = ext2fs_get_rec_len(fs_, entry_at(last_), &length)) return error;
    used = 0;
  }
  if (used) {
    if (const errcode_t error = ext2fs_set_rec_len(fs_, used, entry_at(last_))) return error;
    last_ += used;
  }
  ext2_dir_entry* const entry = entry_at(last_);
  if (const errcode_t error = ext2fs_set_rec_len(fs_, length - used, entry)) return error;
  entry->inode = inode;
  ext2fs_dirent_set_name_len(entry, static_cast<int>(name.size()));
  ext2fs_dirent_set_file_type(entry, type);
  std::memcpy(entry->name, name.data(), name.size());
  return 0;
}

errcode_t Ext4Directory::close() { return ext2fs_write_dir_block4(fs_, place_, block_.data(), 0, inode_); }

}  // namespace ramet::commit
