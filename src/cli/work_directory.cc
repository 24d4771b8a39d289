#include "cli/work_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/file.h"

namespace ramet::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRandom = "XXXXXX";
constexpr size_t kMostOfName = 200;  // of the 255 bytes that a name has
constexpr int kMostTries = 100;

std::string prefix_for(const fs::path& path) { return ".ramet-" + path.filename().string().substr(0, kMostOfName) + "-"; }

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

// Who is not root cannot take files out of directories without the right to write, which an image may have.
void open_up(int parent, const char* name) {
  ::fchmodat(parent, name, 0700, 0);
  UniqueFd fd(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return;
  const int at = fd.get();
  const std::unique_ptr<DIR, CloseDirectory> listed(::fdopendir(fd.get()));
  if (!listed) return;
  fd.release();  // the list's now
  while (const dirent* e = ::readdir(listed.get())) {
    const std::string_view below = e->d_name;
    struct stat st {};
    if (below == "." || below == ".." || ::fstatat(at, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) continue;
    if (S_ISDIR(st.st_mode)) open_up(at, e->d_name);
  }
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return;
  open_up(AT_FDCWD, path.c_str());
  fs::remove_all(path, error);
}

// nullopt: somebody works there, or it is gone.
std::optional<UniqueFd> lock(const std::string& directory) {
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat here {
  }, named{};
  const bool ours = fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && ::fstat(fd.get(), &here) == 0 &&
                    ::lstat(directory.c_str(), &named) == 0 && here.st_ino == named.st_ino;
  if (!ours) return std::nullopt;
  return fd;
}

// Their makers are dead: the kernel gave their locks back.
void remove_left_behind(const fs::path& path) {
  const std::string prefix = prefix_for(path);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent_of(path), error)) {
    const std::string name = entry.path().filename();
    if (name.size() != prefix.size() + kRandom.size() || !name.starts_with(prefix)) continue;
    if (const std::optional<UniqueFd> held = lock(entry.path())) remove_tree(entry.path());
  }
}

}  // namespace

Result<WorkDirectory> WorkDirectory::beside(const std::string& wanted) {
  fs::path path(wanted);
  if (!path.has_filename()) path = path.parent_path();  // `out/`
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) return fail(ErrorKind::kExists, path.string() + " exists already");
  remove_left_behind(path);
  for (int tries = 0; tries < kMostTries; tries++) {
    std::string work = (parent_of(path) / (prefix_for(path) + std::string(kRandom))).string();
    if (!::mkdtemp(work.data())) return fail_errno("make a directory beside " + path.string());
    // Between these two somebody else may have taken it for left behind.
    if (std::optional<UniqueFd> locked = lock(work)) return WorkDirectory(path, std::move(work), *std::move(locked));
    ::rmdir(work.c_str());
  }
  return fail(ErrorKind::kConflict, "no directory beside " + path.string() + " stays ours");
}

WorkDirectory::WorkDirectory(WorkDirectory&& o) noexcept
    : path_(std::move(o.path_)), work_(std::exchange(o.work_, {})), lock_(std::move(o.lock_)) {}

WorkDirectory::~WorkDirectory() {
  if (!work_.empty()) remove_tree(work_);
}

Status WorkDirectory::publish() {
  if (::renameat2(AT_FDCWD, work_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) < 0) return fail_errno("name " + path_);
  work_.clear();
  return {};
}

}  // namespace ramet::cli
