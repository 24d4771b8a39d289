// Walking trees: listing to a depth, removing whole ones. Neither follows symbolic links; both hold a bounded number of
// descriptors whatever the tree looks like.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "base/file.h"
#include "files/file_info.h"
#include "files/operations.h"

namespace ramet::guest {
namespace {

constexpr uint32_t kMaxDepth = 64;
constexpr size_t kBatchBytes = 48u << 10;

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using Directory = std::unique_ptr<DIR, CloseDir>;

Result<Directory> open_directory(int parent, const char* name, const std::string& shown) {
  const int fd = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return fail_errno("open directory " + shown);
  DIR* dir = ::fdopendir(fd);
  if (!dir) {
    ::close(fd);
    return fail_errno("open directory " + shown);
  }
  return Directory(dir);
}

// The next name that is not "." or ".."; null at the end.
const char* next_name(DIR* dir) {
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") return entry->d_name;
  }
  return nullptr;
}

class Lister {
 public:
  Lister(Channel& channel) : channel_(channel) {}

  Status list(DIR* dir, const std::string& prefix, uint32_t depth) {
    while (const char* name = next_name(dir)) {
      struct stat st {};
      if (::fstatat(::dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW) < 0) continue;  // gone since
      const std::string shown = prefix + name;
      TRY(add(file_info(shown, ::dirfd(dir), name, st, names_)));
      if (depth <= 1 || !S_ISDIR(st.st_mode)) continue;
      const Result<Directory> child = open_directory(::dirfd(dir), name, shown);
      if (child) TRY(list(child->get(), shown + "/", depth - 1));  // what may not be read is listed without contents
    }
    return {};
  }

  Status flush() {
    if (batch_.entries().files_size() == 0) return {};
    TRY(channel_.send(batch_));
    batch_.Clear();
    bytes_ = 0;
    return {};
  }

 private:
  Status add(abi::FileInfo info) {
    bytes_ += info.ByteSizeLong() + 8;
    *batch_.mutable_entries()->add_files() = std::move(info);
    return bytes_ >= kBatchBytes ? flush() : Status();
  }

  Channel& channel_;
  NameCache names_;
  abi::Event batch_;
  size_t bytes_ = 0;
};

// Removes what is in a tree. A tree deeper than kMaxDepth is flattened on the way: its deep parts move up to the top.
class Remover {
 public:
  explicit Remover(DIR* top, dev_t device) : top_(top), device_(device) {}

  Status empty_top(const std::string& shown) {
    do {
      moved_up_ = false;
      ::rewinddir(top_);
      TRY(empty(top_, shown, 0));
    } while (moved_up_);
    return {};
  }

 private:
  Status empty(DIR* dir, const std::string& shown, uint32_t depth) {
    while (const char* name = next_name(dir)) TRY(remove_entry(::dirfd(dir), name, shown + "/" + name, depth));
    return {};
  }

  Status remove_entry(int dir, const char* name, const std::string& shown, uint32_t depth) {
    struct stat st {};
    if (::fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) return errno == ENOENT ? Status() : fail_errno("stat " + shown);
    if (!S_ISDIR(st.st_mode)) return unlink(dir, name, 0, shown);
    if (st.st_dev != device_) return fail(ErrorKind::kConflict, shown + " is a mount point");
    if (depth >= kMaxDepth) return move_up(dir, name, shown);
    {
      TRY_ASSIGN(const Directory child, open_directory(dir, name, shown));
      TRY(empty(child.get(), shown, depth + 1));
    }
    return unlink(dir, name, AT_REMOVEDIR, shown);
  }

  Status move_up(int dir, const char* name, const std::string& shown) {
    const std::string moved = ".ramet-removed-" + std::to_string(::getpid()) + "-" + std::to_string(next_moved_++);
    if (::renameat(dir, name, ::dirfd(top_), moved.c_str()) < 0) return fail_errno("remove " + shown);
    moved_up_ = true;
    return {};
  }

  static Status unlink(int dir, const char* name, int flags, const std::string& shown) {
    if (::unlinkat(dir, name, flags) < 0 && errno != ENOENT) return fail_errno("remove " + shown);
    return {};
  }

  DIR* top_;
  dev_t device_;
  bool moved_up_ = false;
  uint64_t next_moved_ = 0;
};

}  // namespace

Status list_directory(const abi::ListDir& request, Channel& channel) {
  TRY(check_path(request.path()));
  if (request.depth() > kMaxDepth)
    return fail(ErrorKind::kInvalid,
                "list: depth " + std::to_string(request.depth()) + ", the limit is " + std::to_string(kMaxDepth));
  const Directory dir(::opendir(request.path().c_str()));
  if (!dir) return fail_errno("open directory " + request.path());
  Lister lister(channel);
  TRY(lister.list(dir.get(), "", std::max(1u, request.depth())));
  return lister.flush();
}

Status remove_file(const abi::RemoveFile& request) {
  TRY(check_path(request.path()));
  const std::string& path = request.path();
  if (path.find_first_not_of('/') == std::string::npos)
    return fail(ErrorKind::kInvalid, "the root directory cannot be removed");
  struct stat st {};
  if (::lstat(path.c_str(), &st) < 0) return fail_errno("remove " + path);
  if (!S_ISDIR(st.st_mode)) return ::unlink(path.c_str()) < 0 ? fail_errno("remove " + path) : Status();
  if (request.recursive()) {
    TRY_ASSIGN(const Directory dir, open_directory(AT_FDCWD, path.c_str(), path));
    TRY(Remover(dir.get(), st.st_dev).empty_top(path));
  }
  if (::rmdir(path.c_str()) < 0) return fail_errno("remove " + path);
  return {};
}

}  // namespace ramet::guest
