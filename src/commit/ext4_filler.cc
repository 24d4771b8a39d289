#include "commit/ext4_filler.h"

#include <ext2fs/ext2fs.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "base/file.h"
#include "image/zero_runs.h"

namespace ramet::commit {
namespace {

constexpr size_t kCopyBytes = 1u << 20;

tl::unexpected<Error> failed(errcode_t error, const std::string& doing) {
  if (error > 0 && error < 256) return fail_errno(doing, static_cast<int>(error));
  if (error == EXT2_ET_BLOCK_ALLOC_FAIL || error == EXT2_ET_INODE_ALLOC_FAIL)
    return fail(ErrorKind::kInvalid, doing + ": the file system is too small for the files");
  if (error == EXT2_ET_EA_NO_SPACE)
    return fail(ErrorKind::kInvalid, doing + ": the extended attributes do not fit into an inode");
  return fail(ErrorKind::kIo, doing + ": " + ::error_message(error));
}

#define TRY_EXT2(call, doing)                                                                    \
  do {                                                                                           \
    if (const errcode_t ramet_error_ = (call); ramet_error_) return failed(ramet_error_, doing); \
  } while (0)

struct CloseFs {
  void operator()(ext2_filsys fs) const { ext2fs_free(fs); }
};
using Filesystem = std::unique_ptr<struct_ext2_filsys, CloseFs>;

class Filler {
 public:
  Filler(ext2_filsys fs, const FileTree& tree, const Spool& spool) : fs_(fs), tree_(tree), spool_(spool) {}

  Status run() {
    TRY(set_attributes(EXT2_ROOT_INO, tree_.node(FileTree::kRoot), "/"));
    std::vector<Directory> left{{FileTree::kRoot, EXT2_ROOT_INO, ""}};
    while (!left.empty()) {
      const Directory at = std::move(left.back());
      left.pop_back();
      for (const auto& [name, child] : tree_.node(at.node).children) {
        const std::string path = at.path + "/" + name;
        TRY_ASSIGN(const ext2_ino_t made, add(at.inode, name, child, path));
        if (tree_.node(child).kind == FileTree::Kind::kDirectory) left.push_back({child, made, path});
      }
    }
    return {};
  }

 private:
  struct Directory {
    FileTree::NodeId node;
    ext2_ino_t inode;
    std::string path;
  };

  Result<ext2_ino_t> add(ext2_ino_t parent, const std::string& name, FileTree::NodeId id, const std::string& path) {
    const FileTree::Node& node = tree_.node(id);
    if (const auto it = made_.find(id); it != made_.end()) return add_link(parent, name, it->second, node, path);
    TRY_ASSIGN(const ext2_ino_t inode, make(parent, name, node, path));
    TRY(set_attributes(inode, node, path));
    if (node.kind != FileTree::Kind::kDirectory) made_.emplace(id, inode);
    return inode;
  }

  Result<ext2_ino_t> make(ext2_ino_t parent, const std::string& name, const FileTree::Node& node, const std::string& path) {
    ext2_ino_t inode = 0;
    if (node.kind == FileTree::Kind::kFile) return make_file(parent, name, node, path);
    const bool directory = node.kind == FileTree::Kind::kDirectory;
    // lost+found is there already.
    if (directory && ext2fs_lookup(fs_, parent, name.c_str(), static_cast<int>(name.size()), nullptr, &inode) == 0)
      return inode;
    const auto once = [&] {
      return directory ? ext2fs_mkdir(fs_, parent, 0, name.c_str())
                       : ext2fs_symlink(fs_, parent, 0, name.c_str(), node.target.c_str());
    };
    TRY(growing(parent, path, once));
    TRY_EXT2(ext2fs_lookup(fs_, parent, name.c_str(), static_cast<int>(name.size()), nullptr, &inode), path);
    return inode;
  }

  // A directory that is full gets another block.
  template <class F>
  Status growing(ext2_ino_t directory, const std::string& path, F call) {
    errcode_t error = call();
    if (error == EXT2_ET_DIR_NO_SPACE) {
      TRY_EXT2(ext2fs_expand_dir(fs_, directory), path);
      error = call();
    }
    TRY_EXT2(error, path);
    return {};
  }

  Result<ext2_ino_t> add_link(ext2_ino_t parent, const std::string& name, ext2_ino_t inode, const FileTree::Node& node,
                              const std::string& path) {
    const int type = node.kind == FileTree::Kind::kSymlink ? EXT2_FT_SYMLINK : EXT2_FT_REG_FILE;
    TRY(growing(parent, path, [&] { return ext2fs_link(fs_, parent, name.c_str(), inode, type); }));
    ext2_inode raw{};
    TRY_EXT2(ext2fs_read_inode(fs_, inode, &raw), path);
    if (raw.i_links_count >= EXT2_LINK_MAX)
      return fail(ErrorKind::kInvalid, "'" + shown(path) + "' is one hard link more than the " + std::to_string(EXT2_LINK_MAX) +
                                           " that an inode can have");
    raw.i_links_count++;
    TRY_EXT2(ext2fs_write_inode(fs_, inode, &raw), path);
    return inode;
  }

  Result<ext2_ino_t> make_file(ext2_ino_t parent, const std::string& name, const FileTree::Node& node,
                               const std::string& path) {
    ext2_ino_t inode = 0;
    TRY_EXT2(ext2fs_new_inode(fs_, parent, S_IFREG, nullptr, &inode), path);
    TRY(growing(parent, path, [&] { return ext2fs_link(fs_, parent, name.c_str(), inode, EXT2_FT_REG_FILE); }));
    ext2fs_inode_alloc_stats2(fs_, inode, +1, 0);
    ext2_inode raw{};
    raw.i_mode = S_IFREG;
    raw.i_links_count = 1;
    TRY_EXT2(ext2fs_inode_size_set(fs_, &raw, static_cast<ext2_off64_t>(node.content.bytes)), path);
    ext2_extent_handle_t extents = nullptr;
    TRY_EXT2(ext2fs_extent_open2(fs_, inode, &raw, &extents), path);
    ext2fs_extent_free(extents);
    TRY_EXT2(ext2fs_write_new_inode(fs_, inode, &raw), path);
    TRY(copy_content(inode, node.content, path));
    return inode;
  }

  Status copy_content(ext2_ino_t inode, const SpoolRange& content, const std::string& path) {
    if (content.bytes == 0) return {};
    ext2_file_t file = nullptr;
    TRY_EXT2(ext2fs_file_open(fs_, inode, EXT2_FILE_WRITE, &file), path);
    Status done = copy_runs(file, content, path);
    // Closing writes what is buffered.
    if (const errcode_t error = ext2fs_file_close(file); error && done) return failed(error, path);
    return done;
  }

  Status copy_runs(ext2_file_t file, const SpoolRange& content, const std::string& path) {
    std::vector<std::byte> buffer(std::min<uint64_t>(kCopyBytes, (content.bytes + 4095) / 4096 * 4096));
    for (uint64_t at = 0; at < content.bytes; at += buffer.size()) {
      // The spool has whole blocks, zeros behind the end.
      const uint64_t left = (content.bytes - at + 4095) / 4096 * 4096;
      const std::span<std::byte> part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), left));
      TRY(pread_exact(spool_.fd(), part, content.offset + at));
      TRY(image::for_zero_runs(part, [&](image::BlockRange run, bool zero) -> Status {
        if (zero) return {};
        const uint64_t first = at + run.first * 4096;
        return write(file, first, part.subspan(run.first * 4096, std::min(run.count * 4096, content.bytes - first)), path);
      }));
    }
    return {};
  }

  static Status write(ext2_file_t file, uint64_t offset, std::span<const std::byte> bytes, const std::string& path) {
    TRY_EXT2(ext2fs_file_llseek(file, offset, EXT2_SEEK_SET, nullptr), path);
    while (!bytes.empty()) {
      unsigned written = 0;
      TRY_EXT2(ext2fs_file_write(file, bytes.data(), static_cast<unsigned>(bytes.size()), &written), path);
      bytes = bytes.subspan(written);
    }
    return {};
  }

  Status set_attributes(ext2_ino_t inode, const FileTree::Node& node, const std::string& path) {
    ext2_inode_large raw{};
    const int size = static_cast<int>(std::min<size_t>(sizeof raw, EXT2_INODE_SIZE(fs_->super)));
    TRY_EXT2(ext2fs_read_inode_full(fs_, inode, reinterpret_cast<ext2_inode*>(&raw), size), path);
    const Attributes& a = node.attributes;
    const uint32_t mode = node.kind == FileTree::Kind::kSymlink ? 0777 : a.mode;
    raw.i_mode = static_cast<uint16_t>((raw.i_mode & S_IFMT) | mode);
    raw.i_uid = static_cast<uint16_t>(a.uid);
    raw.osd2.linux2.l_i_uid_high = static_cast<uint16_t>(a.uid >> 16);
    raw.i_gid = static_cast<uint16_t>(a.gid);
    raw.osd2.linux2.l_i_gid_high = static_cast<uint16_t>(a.gid >> 16);
    // ext4 has 34 bits of seconds, the upper two in the extra field.
    const int64_t time = std::clamp<int64_t>(a.mtime_s, INT32_MIN, (int64_t{1} << 33) - 1);
    const auto low = static_cast<uint32_t>(time);
    const auto high = static_cast<uint32_t>((time - static_cast<int32_t>(low)) >> 32 & 3);
    raw.i_atime = raw.i_mtime = raw.i_ctime = raw.i_crtime = low;
    raw.i_atime_extra = raw.i_mtime_extra = raw.i_ctime_extra = raw.i_crtime_extra = high;
    TRY_EXT2(ext2fs_write_inode_full(fs_, inode, reinterpret_cast<ext2_inode*>(&raw), size), path);
    return a.xattrs.empty() ? Status() : set_xattrs(inode, a, path);
  }

  Status set_xattrs(ext2_ino_t inode, const Attributes& attributes, const std::string& path) {
    ext2_xattr_handle* handle = nullptr;
    TRY_EXT2(ext2fs_xattrs_open(fs_, inode, &handle), path);
    errcode_t error = ext2fs_xattrs_read(handle);
    for (const auto& [name, value] : attributes.xattrs)
      if (!error) error = ext2fs_xattr_set(handle, name.c_str(), value.data(), value.size());
    const errcode_t closing = ext2fs_xattrs_close(&handle);
    TRY_EXT2(error ? error : closing, path);
    return {};
  }

  ext2_filsys fs_;
  const FileTree& tree_;
  const Spool& spool_;
  std::unordered_map<FileTree::NodeId, ext2_ino_t> made_;
};

}  // namespace

Status fill_ext4(const FileTree& tree, const Spool& spool, const std::string& image_path) {
  static const errcode_t messages = (initialize_ext2_error_table(), 0);
  static_cast<void>(messages);
  ext2_filsys opened = nullptr;
  TRY_EXT2(ext2fs_open(image_path.c_str(), EXT2_FLAG_RW | EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &opened),
           "open the file system");
  Filesystem fs(opened);
  fs->now = kEpochSeconds;
  TRY_EXT2(ext2fs_read_bitmaps(fs.get()), "open the file system");
  TRY(Filler(fs.get(), tree, spool).run());
  ext2_filsys last = fs.release();
  TRY_EXT2(ext2fs_close_free(&last), "close the file system");
  return {};
}

}  // namespace ramet::commit
