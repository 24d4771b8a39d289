#include "commit/ext4_tar.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "commit/ext4_attributes.h"
#include "commit/ext4_directory_reader.h"
#include "commit/file_tree.h"

namespace ramet::commit {
namespace {

constexpr uint64_t kReadsPerFile = 32;  // of metadata: a large file has more, small ones fewer
constexpr size_t kMostRanges = 1u << 16;
constexpr size_t kCopyBytes = 256u << 10;
constexpr size_t kMostPathBytes = 4095;

tl::unexpected<Error> no_name_in_a_layer(const std::string& path) {
  return tl::unexpected<Error>(Error(ErrorKind::kInvalid, "'" + shown(path) +
                                                              "' cannot stand in a layer of an OCI image, where '" +
                                                              std::string(kWhiteout) + "' before a name takes that file away")
                                   .with_hint("Export the image as tar, or rename the file."));
}

class Walk {
 public:
  Walk(const Ext4Disk& disk, TarUse use, const ImageLimits& limits, TarWriter& tar)
      : disk_(disk), use_(use), tar_(tar), reader_(disk, limits), data_left_(disk.disk().size()) {}

  Status run() {
    std::vector<Ext4Name> left{{".", EXT2_ROOT_INO}};
    while (!left.empty()) {
      const Ext4Name at = std::move(left.back());
      left.pop_back();
      TRY(enter(at, left));
    }
    return tar_.close();
  }

 private:
  // A directory and what is in it; directories below are left for later.
  Status enter(const Ext4Name& at, std::vector<Ext4Name>& left) {
    TRY_ASSIGN(Ext4Inode inode, read_inode(disk_, at.inode, at.name));
    if (!LINUX_S_ISDIR(inode.raw.i_mode)) return broken(at.name, "is no directory");
    if (!entered_.insert(at.inode).second) return broken(at.name, "is a directory that is in two places");
    TarMember member{.path = at.name + "/"};
    TRY(read_attributes(disk_, inode, member));
    TRY(add(member));
    TRY_ASSIGN(std::vector<Ext4Name> names, reader_.read(at.inode, at.name));
    const size_t first = left.size();
    for (Ext4Name& name : names) {
      if (at.inode == EXT2_ROOT_INO && name.name == "lost+found") continue;
      if (use_ == TarUse::kLayer && name.name.starts_with(kWhiteout)) return no_name_in_a_layer(at.name + "/" + name.name);
      TRY_ASSIGN(const bool is_directory, take({at.name + "/" + name.name, name.inode}));
      if (is_directory) left.push_back({at.name + "/" + name.name, name.inode});
    }
    std::reverse(left.begin() + static_cast<std::ptrdiff_t>(first), left.end());  // the last one is next
    return {};
  }

  // Whether it is a directory, which is not written then.
  Result<bool> take(const Ext4Name& file) {
    if (file.name.size() > kMostPathBytes)
      return broken(file.name.substr(0, kMostPathBytes), "goes on for more than " + std::to_string(kMostPathBytes) + " bytes");
    TRY_ASSIGN(Ext4Inode inode, read_inode(disk_, file.inode, file.name));
    if (LINUX_S_ISDIR(inode.raw.i_mode)) return true;
    if (LINUX_S_ISSOCK(inode.raw.i_mode)) return false;
    TarMember member{.path = file.name};
    TRY(read_attributes(disk_, inode, member));
    if (inode.raw.i_links_count > 1) {
      const auto [it, first] = linked_.try_emplace(file.inode, file.name);
      if (!first) {
        member.hard_link = it->second;
        TRY(add(member));
        return false;
      }
    }
    TRY(add_content(inode, member));
    return false;
  }

  Status add_content(Ext4Inode& inode, TarMember& member) {
    switch (inode.raw.i_mode & LINUX_S_IFMT) {
      case LINUX_S_IFREG: return add_file(inode, member);
      case LINUX_S_IFLNK: {
        TRY_ASSIGN(member.symlink, target_of(disk_, inode, member.path));
        return add(member);
      }
      case LINUX_S_IFCHR:
      case LINUX_S_IFBLK:
      case LINUX_S_IFIFO: return add(member);
      default: return broken(member.path, "is of a kind that is not known");
    }
  }

  Status add(const TarMember& member) {
    TRY(tar_.begin(member));
    return tar_.end();
  }

  Status add_file(Ext4Inode& inode, TarMember& member) {
    member.bytes = inode.bytes();
    if (is_within_inode(inode)) {
      TRY_ASSIGN(const std::string content, content_within(disk_, inode, member.path));
      if (!content.empty()) member.data = {{0, content.size()}};
      TRY(tar_.begin(member));
      TRY(tar_.write(0, std::as_bytes(std::span(content))));
      return tar_.end();
    }
    TRY_ASSIGN(member.data, data_of(inode, member.path));
    TRY(tar_.begin(member));
    TRY(copy(inode, member.path));
    return tar_.end();
  }

  // Runs that touch are one range; a file with too many holes has none.
  Result<std::vector<ByteRange>> data_of(Ext4Inode& inode, const std::string& path) {
    std::vector<ByteRange> data;
    TRY(for_each_run(disk_, inode, path, [&](const Ext4Run& run) -> Status {
      if (run.range.bytes > data_left_) return broken(path, "and the files before have more data than the disk");
      data_left_ -= run.range.bytes;
      const bool joins = !data.empty() && (data.back().end() == run.range.offset || data.size() > kMostRanges);
      if (joins)
        data.back().bytes = run.range.end() - data.back().offset;
      else
        data.push_back(run.range);
      return {};
    }));
    return data;
  }

  Status copy(Ext4Inode& inode, const std::string& path) {
    return for_each_run(disk_, inode, path, [this](const Ext4Run& run) -> Status {
      for (uint64_t at = 0; at < run.range.bytes; at += buffer_.size()) {
        const std::span<std::byte> part = std::span(buffer_).first(std::min<uint64_t>(buffer_.size(), run.range.bytes - at));
        TRY(disk_.disk().read(run.disk_offset + at, part));
        TRY(tar_.write(run.range.offset + at, part));
      }
      return {};
    });
  }

  const Ext4Disk& disk_;
  const TarUse use_;
  TarWriter& tar_;
  Ext4DirectoryReader reader_;
  uint64_t data_left_;  // an honest file system has less than its disk
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kCopyBytes);
  std::unordered_set<ext2_ino_t> entered_;
  std::unordered_map<ext2_ino_t, std::string> linked_;  // where an inode with several names was first
};

}  // namespace

Status write_tar(const image::BlockSource& source, TarUse use, const ImageLimits& limits, const TarWriter::Sink& sink) {
  DiskBytes bytes(source);
  TRY_ASSIGN(const std::unique_ptr<Ext4Disk> disk, Ext4Disk::open(bytes, kReadsPerFile * limits.max_files));
  TRY_ASSIGN(const std::unique_ptr<TarWriter> tar, TarWriter::open(sink));
  return Walk(*disk, use, limits, *tar).run();
}

}  // namespace ramet::commit
