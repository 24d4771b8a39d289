#include "commit/ext4_filler.h"

#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/file.h"
#include "commit/ext4_directory.h"
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

// Safety: a large inode begins as a small one, and libext2fs takes it so, with its size.
ext2_inode* small(ext2_inode_large& raw) { return reinterpret_cast<ext2_inode*>(&raw); }

class Filler {
 public:
  Filler(ext2_filsys fs, const FileTree& tree, const Spool& spool) : fs_(fs), tree_(tree), spool_(spool) {}

  Status run() {
    TRY(set_attributes(EXT2_ROOT_INO, tree_.node(FileTree::kRoot), "/"));
    std::vector<Pending> left{{FileTree::kRoot, EXT2_ROOT_INO, ""}};
    while (!left.empty()) {
      const Pending at = std::move(left.back());
      left.pop_back();
      TRY(fill(at, left));
    }
    return {};
  }

 private:
  struct Pending {
    FileTree::NodeId node;
    ext2_ino_t inode;
    std::string path;
  };

  // Directories below are left for later.
  Status fill(const Pending& at, std::vector<Pending>& left) {
    Ext4Directory entries(fs_, at.inode);
    TRY_EXT2(entries.open(), at.path);
    for (const auto& [name, child] : tree_.node(at.node).children) {
      const FileTree::Node& node = tree_.node(child);
      const std::string path = at.path + "/" + name;
      const std::optional<ext2_ino_t> there = at.inode == EXT2_ROOT_INO ? find_in_root(name) : std::nullopt;
      TRY_ASSIGN(const ext2_ino_t inode, inode_for(there, at.inode, child, path));
      if (!there) TRY_EXT2(entries.add(name, inode, type_of(node)), path);
      if (node.kind == FileTree::Kind::kDirectory) left.push_back({child, inode, path});
    }
    TRY_EXT2(entries.close(), at.path);
    return {};
  }

  // lost+found is there already.
  std::optional<ext2_ino_t> find_in_root(const std::string& name) const {
    ext2_ino_t inode = 0;
    if (name != "lost+found" || ext2fs_lookup(fs_, EXT2_ROOT_INO, name.c_str(), static_cast<int>(name.size()), nullptr, &inode))
      return std::nullopt;
    return inode;
  }

  static int type_of(const FileTree::Node& node) {
    switch (node.kind) {
      case FileTree::Kind::kDirectory: return EXT2_FT_DIR;
      case FileTree::Kind::kSymlink: return EXT2_FT_SYMLINK;
      default: return EXT2_FT_REG_FILE;
    }
  }

  Result<ext2_ino_t> inode_for(std::optional<ext2_ino_t> there, ext2_ino_t parent, FileTree::NodeId id,
                               const std::string& path) {
    const FileTree::Node& node = tree_.node(id);
    if (const auto it = made_.find(id); it != made_.end()) return another_link(it->second, path);
    if (there && node.kind != FileTree::Kind::kDirectory)
      return fail(ErrorKind::kInvalid, "'lost+found' at the root of an ext4 file system is a directory");
    if (!there) {
      TRY_ASSIGN(there, make(parent, node, path));
    }
    TRY(set_attributes(*there, node, path));
    if (node.kind != FileTree::Kind::kDirectory) made_.emplace(id, *there);
    return *there;
  }

  Result<ext2_ino_t> make(ext2_ino_t parent, const FileTree::Node& node, const std::string& path) {
    constexpr int kTypes[] = {S_IFDIR, S_IFREG, S_IFLNK};  // as FileTree::Kind
    ext2_ino_t inode = 0;
    TRY_EXT2(ext2fs_new_inode(fs_, parent, kTypes[static_cast<int>(node.kind)], nullptr, &inode), path);
    if (node.kind == FileTree::Kind::kDirectory)
      TRY_EXT2(ext2fs_mkdir(fs_, parent, inode, nullptr), path);
    else if (node.kind == FileTree::Kind::kSymlink)
      TRY_EXT2(ext2fs_symlink(fs_, parent, inode, nullptr, node.target.c_str()), path);
    else
      TRY(make_file(inode, node, path));
    return inode;
  }

  Result<ext2_ino_t> another_link(ext2_ino_t inode, const std::string& path) {
    ext2_inode raw{};
    TRY_EXT2(ext2fs_read_inode(fs_, inode, &raw), path);
    if (raw.i_links_count >= EXT2_LINK_MAX)
      return fail(ErrorKind::kInvalid, "'" + shown(path) + "' is one hard link more than the " + std::to_string(EXT2_LINK_MAX) +
                                           " that an inode can have");
    raw.i_links_count++;
    TRY_EXT2(ext2fs_write_inode(fs_, inode, &raw), path);
    return inode;
  }

  Status make_file(ext2_ino_t inode, const FileTree::Node& node, const std::string& path) {
    ext2fs_inode_alloc_stats2(fs_, inode, +1, 0);
    ext2_inode raw{};
    raw.i_mode = S_IFREG;
    raw.i_links_count = 1;
    TRY_EXT2(ext2fs_inode_size_set(fs_, &raw, static_cast<ext2_off64_t>(node.content.bytes)), path);
    ext2_extent_handle_t extents = nullptr;
    TRY_EXT2(ext2fs_extent_open2(fs_, inode, &raw, &extents), path);
    ext2fs_extent_free(extents);
    TRY_EXT2(ext2fs_write_new_inode(fs_, inode, &raw), path);
    return copy_content(inode, node.content, path);
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
    TRY_EXT2(ext2fs_read_inode_full(fs_, inode, small(raw), size), path);
    const Attributes& a = node.attributes;
    const uint32_t mode = node.kind == FileTree::Kind::kSymlink ? 0777 : a.mode;
    raw.i_mode = static_cast<uint16_t>((raw.i_mode & S_IFMT) | mode);
    raw.i_uid = static_cast<uint16_t>(a.uid);
    raw.osd2.linux2.l_i_uid_high = static_cast<uint16_t>(a.uid >> 16);
    raw.i_gid = static_cast<uint16_t>(a.gid);
    raw.osd2.linux2.l_i_gid_high = static_cast<uint16_t>(a.gid >> 16);
    // ext4 has 34 bits of seconds, the upper two in the extra field, below the nanoseconds.
    const int64_t time = std::clamp<int64_t>(a.mtime_s, INT32_MIN, (int64_t{1} << 33) - 1);
    const auto low = static_cast<uint32_t>(time);
    const auto high = static_cast<uint32_t>((time - static_cast<int32_t>(low)) >> 32 & 3);
    raw.i_atime = raw.i_mtime = raw.i_ctime = raw.i_crtime = low;
    raw.i_atime_extra = raw.i_mtime_extra = raw.i_ctime_extra = raw.i_crtime_extra = high | a.mtime_ns << 2;
    TRY_EXT2(ext2fs_write_inode_full(fs_, inode, small(raw), size), path);
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
