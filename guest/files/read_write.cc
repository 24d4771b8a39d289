// Reading and writing whole files as streams. Replacing: a temporary beside the file, synced, renamed over it, directory
// synced, so that a crash or a lost connection leaves the old contents. Where that cannot be (a device, a mount point, a
// directory the user may not change) the file is written in place.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <functional>
#include <optional>

#include "base/file.h"
#include "files/file_info.h"
#include "files/operations.h"

namespace ramet::guest {
namespace {

Result<struct stat> stat_fd(int fd, const std::string& path) {
  struct stat st {};
  if (::fstat(fd, &st) < 0) return fail_errno("stat " + path);
  return st;
}

Status set_file_answer(int fd, const std::string& path, abi::Event& answer) {
  TRY_ASSIGN(const struct stat st, stat_fd(fd, path));
  NameCache names;
  *answer.mutable_result()->mutable_file() = file_info(path, AT_FDCWD, path.c_str(), st, names);
  return {};
}

// Hands every chunk to `write` until the host says eof.
Status receive_contents(Channel& channel, const std::function<Status(std::string_view)>& write) {
  for (;;) {
    TRY_ASSIGN(const abi::Input input, channel.receive());
    if (!input.has_data()) return fail(ErrorKind::kInvalid, "write: a frame without data");
    if (!input.data().bytes().empty()) TRY(write(input.data().bytes()));
    if (input.data().eof()) return {};
  }
}

// The file a path names in the end; the path itself when nothing is there.
std::string resolve(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (!real) return path;
  std::string resolved = real;
  ::free(real);
  return resolved;
}

bool must_write_in_place(const std::string& path, const struct stat& existing) {
  if (!S_ISREG(existing.st_mode)) return true;
  struct stat dir {};
  if (::stat(parent_of(path).c_str(), &dir) < 0 || dir.st_dev != existing.st_dev) return true;  // a mount point
  return ::access(parent_of(path).c_str(), W_OK) < 0;
}

Status write_in_place(const abi::WriteFile& request, int flags, Channel& channel, abi::Event& answer) {
  const mode_t mode = request.permissions() ? request.permissions() & 07777 : 0644;
  TRY_ASSIGN(const UniqueFd file, open_file(request.path(), O_WRONLY | O_NOCTTY | flags, mode));
  uint64_t offset = request.offset();
  const bool positioned = request.mode() == abi::WRITE_AT;
  const auto write = [&](std::string_view bytes) {
    const Status written =
        positioned ? pwrite_all(file.get(), as_bytes(bytes), offset) : write_all(file.get(), as_bytes(bytes));
    offset += bytes.size();
    return written;
  };
  TRY(receive_contents(channel, write));
  if (request.permissions() && ::fchmod(file.get(), mode) < 0) return fail_errno("set the mode of " + request.path());
  if (::fsync(file.get()) < 0 && errno != EINVAL && errno != EROFS) return fail_errno("sync " + request.path());
  return set_file_answer(file.get(), request.path(), answer);
}

struct Temporary {
  std::string path;
  UniqueFd file;
  bool renamed = false;
  ~Temporary() {
    if (file && !renamed) ::unlink(path.c_str());
  }
};

Status replace(const abi::WriteFile& request, const std::string& path, const std::optional<struct stat>& existing,
               Channel& channel, abi::Event& answer) {
  Temporary temporary;
  temporary.path = (parent_of(path) == "/" ? "" : parent_of(path)) + "/.ramet-XXXXXX";
  temporary.file.reset(::mkostemp(temporary.path.data(), O_CLOEXEC));
  if (!temporary.file) return fail_errno("create a file in " + parent_of(path));
  const int fd = temporary.file.get();
  TRY(receive_contents(channel, [fd](std::string_view bytes) { return write_all(fd, as_bytes(bytes)); }));

  if (existing && request.user().empty()) (void)!::fchown(fd, existing->st_uid, existing->st_gid);  // keeps its owner
  const mode_t mode = request.permissions() ? request.permissions() : existing ? existing->st_mode : 0644;
  if (::fchmod(fd, mode & 07777) < 0) return fail_errno("set the mode of " + path);
  if (::fsync(fd) < 0) return fail_errno("sync " + path);
  if (::rename(temporary.path.c_str(), path.c_str()) < 0) return fail_errno("replace " + path);
  temporary.renamed = true;
  TRY(sync_directory(parent_of(path)));
  return set_file_answer(fd, request.path(), answer);
}

}  // namespace

Status read_file_to(const abi::ReadFile& request, Channel& channel, abi::Event& answer) {
  TRY(check_path(request.path()));
  // Non-blocking: opening a pipe without a writer must not hang.
  TRY_ASSIGN(const UniqueFd file, open_file(request.path(), O_RDONLY | O_NOCTTY | O_NONBLOCK));
  TRY_ASSIGN(const struct stat st, stat_fd(file.get(), request.path()));
  if (S_ISDIR(st.st_mode)) return fail(ErrorKind::kConflict, request.path() + " is a directory");
  TRY(set_file_answer(file.get(), request.path(), answer));
  if (request.offset() > 0 && ::lseek(file.get(), static_cast<off_t>(request.offset()), SEEK_SET) < 0)
    return fail_errno("go to offset " + std::to_string(request.offset()) + " of " + request.path());

  uint64_t left = request.length() ? request.length() : UINT64_MAX;
  std::array<char, abi::kChunkBytes> buffer;
  for (bool eof = false; !eof;) {
    const ssize_t n = ::read(file.get(), buffer.data(), std::min<uint64_t>(left, buffer.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read " + request.path());
    left -= static_cast<uint64_t>(n);
    eof = n == 0 || left == 0;
    abi::Event event;
    event.mutable_data()->set_bytes(buffer.data(), static_cast<size_t>(n));
    event.mutable_data()->set_eof(eof);
    TRY(channel.send(event));
  }
  return {};
}

Status write_file_from(const abi::WriteFile& request, Channel& channel, abi::Event& answer) {
  TRY(check_path(request.path()));
  if (request.create_parents()) TRY(make_parents(request.path()));
  if (request.mode() == abi::WRITE_AT) return write_in_place(request, O_CREAT, channel, answer);
  if (request.mode() == abi::WRITE_APPEND) return write_in_place(request, O_CREAT | O_APPEND, channel, answer);
  if (request.mode() != abi::WRITE_REPLACE)
    return fail(ErrorKind::kInvalid, "write: unknown mode " + std::to_string(request.mode()));

  const std::string path = resolve(request.path());
  struct stat st {};
  if (::stat(path.c_str(), &st) < 0) return replace(request, path, std::nullopt, channel, answer);
  if (S_ISDIR(st.st_mode)) return fail(ErrorKind::kConflict, request.path() + " is a directory");
  if (must_write_in_place(path, st)) return write_in_place(request, O_TRUNC, channel, answer);
  return replace(request, path, st, channel, answer);
}

}  // namespace ramet::guest
