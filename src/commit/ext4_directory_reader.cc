#include "commit/ext4_directory_reader.h"

#include <algorithm>

#include "commit/file_tree.h"

namespace ramet::commit {

Status Ext4DirectoryReader::take(std::string_view name, ext2_ino_t inode, const std::string& path,
                                 std::vector<Ext4Name>& names) {
  if (name == "." || name == "..") return {};
  if (name.empty() || name.find('/') != name.npos || name.find('\0') != name.npos)
    return broken(path, "has an entry '" + shown(name) + "', which is no name");
  if (files_left_ == 0)
    return fail(ErrorKind::kInvalid, "the file system has more than " + std::to_string(limits_.max_files) + " files");
  files_left_--;
  // Its path is kept, too.
  const uint64_t bytes = name.size() + path.size();
  if (bytes > metadata_left_)
    return fail(ErrorKind::kInvalid,
                "the names of the files take more than " + std::to_string(limits_.max_metadata_bytes) + " bytes together");
  metadata_left_ -= bytes;
  names.push_back({std::string(name), inode});
  return {};
}

Result<std::vector<Ext4Name>> Ext4DirectoryReader::read(ext2_ino_t directory, const std::string& path) {
  struct Context {
    Ext4DirectoryReader& reader;
    const std::string& path;
    std::vector<Ext4Name> names;
    Status done;
  } context{*this, path, {}, {}};
  // The library has checked that the entry lies within its block.
  const auto each = [](ext2_ino_t, int, ext2_dir_entry* entry, int, int, char*, void* self) {
    Context& c = *static_cast<Context*>(self);
    const auto bytes = static_cast<size_t>(ext2fs_dirent_name_len(entry));
    c.done = c.reader.take({entry->name, bytes}, entry->inode, c.path, c.names);
    return c.done ? 0 : DIRENT_ABORT;
  };
  const errcode_t error = ext2fs_dir_iterate2(disk_.fs(), directory, 0, nullptr, each, &context);
  if (!context.done) return tl::unexpected<Error>(context.done.error());
  if (error) return disk_.failed(error, path);
  std::ranges::sort(context.names, {}, &Ext4Name::name);
  const auto twice = std::ranges::adjacent_find(context.names, {}, &Ext4Name::name);
  if (twice != context.names.end()) return broken(path + "/" + twice->name, "is there twice");
  return std::move(context.names);
}

}  // namespace ramet::commit
