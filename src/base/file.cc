#include "base/file.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>

namespace ramet {

Result<UniqueFd> UniqueFd::duplicate() const {
  const int fd = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return fail_errno("duplicate descriptor");
  return UniqueFd(fd);
}

namespace {

// Whoever reads that a disk is full wants to know which, and how much was wanted.
tl::unexpected<Error> fail_write(int fd, size_t bytes, const std::string& where) {
  const int err = errno;
  std::string what = "write " + std::to_string(bytes) + " bytes" + where;
  std::error_code unknown;
  const std::filesystem::path file = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), unknown);
  if (!unknown && file.is_absolute()) what += " of " + file.string();
  return fail_errno(what, err);
}

}  // namespace

Result<UniqueFd> open_file(const std::string& path, int flags, mode_t mode) {
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) return fail_errno("open " + path);
  return UniqueFd(fd);
}

Result<UniqueFd> reopen(int fd, int flags) { return open_file("/proc/self/fd/" + std::to_string(fd), flags); }

Result<uint64_t> file_size(int fd) {
  struct stat st;
  if (::fstat(fd, &st) < 0) return fail_errno("stat");
  if (S_ISBLK(st.st_mode)) {
    const off_t end = ::lseek(fd, 0, SEEK_END);
    if (end < 0) return fail_errno("seek to the end of a block device");
    return static_cast<uint64_t>(end);
  }
  return static_cast<uint64_t>(st.st_size);
}

Status read_exact(int fd, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = ::read(fd, out.data(), out.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read");
    if (n == 0) return fail(ErrorKind::kCorrupt, "read: end of file with " + std::to_string(out.size()) + " bytes missing");
    out = out.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status pread_exact(int fd, std::span<std::byte> out, uint64_t offset) {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read at offset " + std::to_string(offset));
    if (n == 0)
      return fail(ErrorKind::kCorrupt, "read at offset " + std::to_string(offset) + ": end of file with " +
                                           std::to_string(out.size()) + " bytes missing");
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Status write_all(int fd, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_write(fd, data.size(), "");
    data = data.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status pwrite_all(int fd, std::span<const std::byte> data, uint64_t offset) {
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_write(fd, data.size(), " at offset " + std::to_string(offset));
    data = data.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  TRY_ASSIGN(UniqueFd fd, open_file(path, O_RDONLY));
  std::string out;
  char buf[16384];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buf, sizeof buf);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read " + path);
    if (n == 0) return out;
    if (out.size() + static_cast<size_t>(n) > max_bytes)
      return fail(ErrorKind::kInvalid, path + " is longer than the limit of " + std::to_string(max_bytes) + " bytes");
    out.append(buf, static_cast<size_t>(n));
  }
}

Status sync_directory(const std::string& path) {
  TRY_ASSIGN(UniqueFd dir, open_file(path, O_RDONLY | O_DIRECTORY));
  if (::fsync(dir.get()) < 0) return fail_errno("sync directory " + path);
  return {};
}

Status replace_file(const std::string& path, std::string_view content, mode_t mode) {
  const size_t slash = path.find_last_of('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());  // half_replaced.h knows it
  {
    TRY_ASSIGN(UniqueFd fd, open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC, mode));
    Status written = write_all(fd.get(), as_bytes(content));
    if (written && ::fsync(fd.get()) < 0) written = fail_errno("sync " + temporary);
    if (!written) {
      ::unlink(temporary.c_str());
      return tl::unexpected<Error>(std::move(written).error().with_context("write " + path));
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) < 0) {
    const int err = errno;
    ::unlink(temporary.c_str());
    return fail_errno("rename to " + path, err);
  }
  return sync_directory(directory);
}

namespace {

Status make_each_directory(const std::string& path, mode_t mode, const std::function<Status(const std::string&)>& made) {
  for (size_t at = 1; at <= path.size(); at++) {
    if (at != path.size() && path[at] != '/') continue;
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), mode) == 0)
      TRY(made(part));
    else if (errno != EEXIST)
      return fail_errno("create directory " + part);
  }
  return {};
}

}  // namespace

Status make_directories(const std::string& path, mode_t mode) {
  return make_each_directory(path, mode, [](const std::string&) { return Status(); });
}

Status make_lasting_directories(const std::string& path, mode_t mode) {
  return make_each_directory(path, mode, [](const std::string& made) {
    const size_t slash = made.rfind('/');
    return sync_directory(slash == std::string::npos ? "." : made.substr(0, std::max<size_t>(slash, 1)));
  });
}

Result<UniqueFd> make_memfd(const char* name, uint64_t size_bytes) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail_errno("create memfd");
  if (::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) < 0) return fail_errno("size memfd");
  return fd;
}

Result<SocketPair> make_socket_pair(int type) {
  int fds[2];
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) < 0) return fail_errno("socketpair");
  return SocketPair{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Result<Pipe> make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) < 0) return fail_errno("pipe");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Status set_nonblocking(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) < 0) return fail_errno("fcntl");
  return {};
}

}  // namespace ramet
