#include "files/file_info.h"

#include <unistd.h>

#include <climits>

#include "users.h"

namespace ramet::guest {
namespace {

abi::FileType type_of(mode_t mode) {
  if (S_ISREG(mode)) return abi::FILE_REGULAR;
  if (S_ISDIR(mode)) return abi::FILE_DIRECTORY;
  if (S_ISLNK(mode)) return abi::FILE_SYMLINK;
  return abi::FILE_OTHER;
}

}  // namespace

const std::string& NameCache::user(uid_t uid) {
  const auto it = users_.find(uid);
  return it != users_.end() ? it->second : users_.emplace(uid, user_name(uid)).first->second;
}

const std::string& NameCache::group(gid_t gid) {
  const auto it = groups_.find(gid);
  return it != groups_.end() ? it->second : groups_.emplace(gid, group_name(gid)).first->second;
}

abi::FileInfo file_info(const std::string& shown, int dir, const char* name, const struct stat& st, NameCache& names) {
  abi::FileInfo info;
  info.set_path(shown);
  info.set_type(type_of(st.st_mode));
  info.set_size_bytes(static_cast<uint64_t>(st.st_size));
  info.set_mode(st.st_mode & 07777);
  info.set_uid(st.st_uid);
  info.set_gid(st.st_gid);
  info.set_user(names.user(st.st_uid));
  info.set_group(names.group(st.st_gid));
  info.set_mtime_ns(st.st_mtim.tv_sec * 1'000'000'000ll + st.st_mtim.tv_nsec);
  if (S_ISLNK(st.st_mode)) {
    char target[PATH_MAX];
    const ssize_t n = ::readlinkat(dir, name, target, sizeof target);
    if (n > 0) info.set_symlink_target(target, static_cast<size_t>(n));
  }
  return info;
}

}  // namespace ramet::guest
