#include "base/output_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "base/file.h"

namespace ramet {
namespace {

std::string directory_of(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path();
  return directory.empty() ? "." : directory;
}

struct Nameless {
  UniqueFd fd;
  std::string hidden;  // empty: really nameless
};
Result<Nameless> open_nameless(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return Nameless{UniqueFd(fd), {}};
  if (errno != EOPNOTSUPP && errno != EISDIR) return fail_errno("make a file in " + directory);
  std::string name = directory + "/.ramet-XXXXXX";
  UniqueFd named(::mkostemp(name.data(), O_CLOEXEC));
  if (!named) return fail_errno("make a file in " + directory);
  return Nameless{std::move(named), std::move(name)};
}

}  // namespace

OutputFile::OutputFile(OutputFile&& o) noexcept
    : fd_(std::move(o.fd_)), path_(std::move(o.path_)), hidden_(std::exchange(o.hidden_, {})) {}

OutputFile::~OutputFile() {
  if (!hidden_.empty()) ::unlink(hidden_.c_str());
}

Result<OutputFile> OutputFile::temporary(const std::string& directory) {
  TRY_ASSIGN(Nameless made, open_nameless(directory));
  if (!made.hidden.empty()) ::unlink(made.hidden.c_str());
  return OutputFile(std::move(made.fd), {}, {});
}

Result<OutputFile> OutputFile::at(const std::string& path, mode_t mode) {
  if (std::error_code error; std::filesystem::exists(std::filesystem::symlink_status(path, error)))
    return fail(ErrorKind::kExists, path + " exists already");
  TRY_ASSIGN(Nameless made, open_nameless(directory_of(path)));
  if (::fchmod(made.fd.get(), mode) < 0) return fail_errno("change the mode of " + path);
  return OutputFile(std::move(made.fd), path, std::move(made.hidden));
}

Status OutputFile::publish() {
  if (::fsync(fd_.get()) < 0) return fail_errno("sync " + path_);
  const bool done = hidden_.empty() ? ::linkat(AT_FDCWD, ("/proc/self/fd/" + std::to_string(fd_.get())).c_str(), AT_FDCWD,
                                               path_.c_str(), AT_SYMLINK_FOLLOW) == 0
                                    : ::renameat2(AT_FDCWD, hidden_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0;
  if (!done) return fail_errno("name " + path_);
  hidden_.clear();
  return sync_directory(directory_of(path_));
}

}  // namespace ramet
