#include "host/overlay_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"
#include "host/ids.h"

namespace ramet::host {
namespace {

// False: the file system or our rights do not allow it.
bool set_immutable(int fd, bool on) {
  int flags = 0;
  if (::ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0) return false;
  const int wanted = on ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
  if (wanted == flags) return true;
  return ::ioctl(fd, FS_IOC_SETFLAGS, &wanted) == 0;
}

Status remove_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  if (errno == EPERM) {
    TRY_ASSIGN(const UniqueFd fd, open_file(path, O_RDONLY));
    set_immutable(fd.get(), false);
    if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  }
  return fail_errno("delete " + path);
}

Result<bool> seal_file(const std::string& path) {
  TRY_ASSIGN(const UniqueFd fd, open_file(path, O_RDONLY));
  if (::fdatasync(fd.get()) < 0) return fail_errno("sync " + path);
  return set_immutable(fd.get(), true);
}

}  // namespace

Result<OverlayFiles> OverlayStore::create(const std::string& id) const {
  OverlayFiles f;
  f.id = id;
  const std::string data = paths_.overlay_data(id), log = paths_.overlay_log(id);
  TRY_ASSIGN(f.data_rw, open_file(data, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  TRY_ASSIGN(f.log_rw, open_file(log, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  TRY_ASSIGN(f.data_ro, open_file(data, O_RDONLY | O_NOFOLLOW));
  TRY_ASSIGN(f.log_ro, open_file(log, O_RDONLY | O_NOFOLLOW));
  return f;
}

Result<OverlayReadFiles> OverlayStore::open_read(const std::string& id) const {
  OverlayReadFiles f;
  f.id = id;
  TRY_ASSIGN(f.data_ro, open_file(paths_.overlay_data(id), O_RDONLY | O_NOFOLLOW));
  TRY_ASSIGN(f.log_ro, open_file(paths_.overlay_log(id), O_RDONLY | O_NOFOLLOW));
  return f;
}

Result<bool> OverlayStore::seal(const std::string& id) const {
  TRY_ASSIGN(const bool data, seal_file(paths_.overlay_data(id)));
  TRY_ASSIGN(const bool log, seal_file(paths_.overlay_log(id)));
  return data && log;
}

Status OverlayStore::remove(const std::string& id) const {
  if (!is_id(id)) return fail(ErrorKind::kInvalid, "'" + id + "' is not the id of an overlay");
  TRY(remove_file(paths_.overlay_data(id)));
  return remove_file(paths_.overlay_log(id));
}

uint64_t OverlayStore::allocated_bytes(const std::string& id) const {
  uint64_t sum = 0;
  for (const std::string& path : {paths_.overlay_data(id), paths_.overlay_log(id)}) {
    struct stat st;
    if (::stat(path.c_str(), &st) == 0) sum += static_cast<uint64_t>(st.st_blocks) * 512;
  }
  return sum;
}

Result<std::vector<std::string>> OverlayStore::present() const {
  std::vector<std::string> out;
  DIR* dir = ::opendir(paths_.overlays().c_str());
  if (!dir) return fail_errno("list " + paths_.overlays());
  while (const dirent* e = ::readdir(dir)) {
    const std::string name = e->d_name;
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos || (name.substr(dot) != ".data" && name.substr(dot) != ".log")) continue;
    if (is_id(name.substr(0, dot))) out.push_back(name.substr(0, dot));
  }
  ::closedir(dir);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

bool OverlayStore::can_seal() const {
  const std::string path = paths_.overlays() + "/.probe";
  Result<UniqueFd> fd = open_file(path, O_RDWR | O_CREAT, 0600);
  if (!fd) return false;
  const bool ok = set_immutable(fd->get(), true);
  set_immutable(fd->get(), false);
  ::unlink(path.c_str());
  return ok;
}

}  // namespace ramet::host
