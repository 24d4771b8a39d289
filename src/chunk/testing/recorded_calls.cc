#include "chunk/testing/recorded_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <new>
#include <string>

#include "chunk/testing/recorded_disk.h"

namespace ramet::chunk::testing {
namespace {

using Kind = RecordedDisk::Kind;

std::string path_of(int fd) {
  char buffer[4096];
  const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), buffer, sizeof buffer);
  return n < 0 ? std::string() : std::string(buffer, static_cast<size_t>(n));
}
std::string path_of(int directory, const char* name) {
  return name[0] == '/' || directory == AT_FDCWD ? std::string(name) : path_of(directory) + "/" + name;
}
std::string parent_of(const std::string& path) { return std::filesystem::path(path).parent_path(); }

// ---- SQLite: https://www.sqlite.org/vfs.html ----

struct File {
  sqlite3_file base;
  std::string path;
  bool sync_directory = false;  // SQLite does so when it first syncs a log that it made
  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};
File& of(sqlite3_file* f) { return *reinterpret_cast<File*>(f); }
sqlite3_vfs* real_vfs = nullptr;

int close(sqlite3_file* f) {
  const int rc = of(f).real()->pMethods->xClose(of(f).real());
  of(f).path.~basic_string();
  return rc;
}
int write(sqlite3_file* f, const void* data, int bytes, sqlite3_int64 offset) {
  File& file = of(f);
  RecordedDisk* const disk = RecordedDisk::of(file.path);
  const int fits = disk ? static_cast<int>(disk->room_for(static_cast<size_t>(bytes))) : bytes;
  const int rc = fits > 0 ? file.real()->pMethods->xWrite(file.real(), data, fits, offset) : SQLITE_OK;
  if (disk && fits > 0)
    disk->note(Kind::kWrite, file.path, {}, static_cast<uint64_t>(offset),
               std::string(static_cast<const char*>(data), static_cast<size_t>(fits)));
  return fits < bytes ? SQLITE_FULL : rc;
}
int truncate(sqlite3_file* f, sqlite3_int64 size) {
  if (RecordedDisk* const disk = RecordedDisk::of(of(f).path))
    disk->note(Kind::kTruncate, of(f).path, {}, static_cast<uint64_t>(size));
  return of(f).real()->pMethods->xTruncate(of(f).real(), size);
}
int sync(sqlite3_file* f, int) {
  File& file = of(f);
  if (RecordedDisk* const disk = RecordedDisk::of(file.path)) {
    disk->note(Kind::kSync, file.path);
    if (file.sync_directory) disk->note(Kind::kSyncDirectory, parent_of(file.path));
    file.sync_directory = false;
  }
  return SQLITE_OK;  // power does not fail really
}

#define FORWARD(name, parameters, ...) \
  int name parameters { return of(f).real()->pMethods->name(of(f).real(), __VA_ARGS__); }
FORWARD(xRead, (sqlite3_file * f, void* data, int bytes, sqlite3_int64 offset), data, bytes, offset)
FORWARD(xFileSize, (sqlite3_file * f, sqlite3_int64* size), size)
FORWARD(xLock, (sqlite3_file * f, int level), level)
FORWARD(xUnlock, (sqlite3_file * f, int level), level)
FORWARD(xCheckReservedLock, (sqlite3_file * f, int* out), out)
FORWARD(xFileControl, (sqlite3_file * f, int op, void* argument), op, argument)
FORWARD(xShmMap, (sqlite3_file * f, int page, int size, int extend, void volatile** out), page, size, extend, out)
FORWARD(xShmLock, (sqlite3_file * f, int offset, int n, int flags), offset, n, flags)
FORWARD(xShmUnmap, (sqlite3_file * f, int remove), remove)
#undef FORWARD
int sector_size(sqlite3_file* f) { return of(f).real()->pMethods->xSectorSize(of(f).real()); }
int characteristics(sqlite3_file*) { return 0; }  // nothing is promised
void shm_barrier(sqlite3_file* f) { of(f).real()->pMethods->xShmBarrier(of(f).real()); }

constexpr sqlite3_io_methods kMethods = {2,
                                         close,
                                         xRead,
                                         write,
                                         truncate,
                                         sync,
                                         xFileSize,
                                         xLock,
                                         xUnlock,
                                         xCheckReservedLock,
                                         xFileControl,
                                         sector_size,
                                         characteristics,
                                         xShmMap,
                                         xShmLock,
                                         shm_barrier,
                                         xShmUnmap,
                                         nullptr,
                                         nullptr};

int open(sqlite3_vfs*, const char* name, sqlite3_file* f, int flags, int* out_flags) {
  File& file = of(f);
  new (&file.path) std::string(name ? name : "");
  file.sync_directory = false;
  file.base.pMethods = nullptr;
  const bool existed = std::filesystem::exists(file.path);
  const int rc = real_vfs->xOpen(real_vfs, name, file.real(), flags, out_flags);
  if (rc != SQLITE_OK) return rc;
  file.base.pMethods = &kMethods;
  if (RecordedDisk* const disk = RecordedDisk::of(file.path); disk && !existed && (flags & SQLITE_OPEN_CREATE)) {
    disk->note(Kind::kCreate, file.path);
    file.sync_directory = (flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL)) != 0;
  }
  return rc;
}
int remove(sqlite3_vfs*, const char* name, int sync_directory) {
  const bool existed = std::filesystem::exists(name);
  const int rc = real_vfs->xDelete(real_vfs, name, 0);
  if (RecordedDisk* const disk = RecordedDisk::of(name); disk && existed && rc == SQLITE_OK) {
    disk->note(Kind::kRemove, name);
    if (sync_directory) disk->note(Kind::kSyncDirectory, parent_of(name));
  }
  return rc;
}

}  // namespace

void install_recording_vfs() {
  if (real_vfs) return;
  real_vfs = sqlite3_vfs_find(nullptr);
  static sqlite3_vfs vfs = *real_vfs;
  vfs.zName = "recording";
  vfs.szOsFile = static_cast<int>(sizeof(File)) + real_vfs->szOsFile;
  vfs.xOpen = open;
  vfs.xDelete = remove;
  sqlite3_vfs_register(&vfs, 1);
}

}  // namespace ramet::chunk::testing

// ---- our own code ----

using ramet::chunk::testing::RecordedDisk;
using Kind = RecordedDisk::Kind;

// What --wrap makes of the names.
extern "C" {

int __real_openat(int directory, const char* name, int flags, ...);
ssize_t __real_write(int fd, const void* data, size_t bytes);
int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags);
int __real_unlinkat(int directory, const char* name, int flags);

int __wrap_openat(int directory, const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  const std::string path = ramet::chunk::testing::path_of(directory, name);
  RecordedDisk* const disk = RecordedDisk::of(path);
  const bool existed = !disk || std::filesystem::exists(path);
  const int fd = __real_openat(directory, name, flags, mode);
  if (fd >= 0 && !existed) disk->note(Kind::kCreate, path);
  return fd;
}

ssize_t __wrap_write(int fd, const void* data, size_t bytes) {
  const std::string path = ramet::chunk::testing::path_of(fd);
  RecordedDisk* const disk = RecordedDisk::of(path);
  if (!disk) return __real_write(fd, data, bytes);
  const size_t fits = disk->room_for(bytes) / 4096 * 4096;
  if (fits == 0) {
    errno = ENOSPC;
    return -1;
  }
  const off_t at = ::lseek(fd, 0, SEEK_CUR);
  const ssize_t done = __real_write(fd, data, fits);
  if (done > 0)
    disk->note(Kind::kWrite, path, {}, static_cast<uint64_t>(at),
               std::string(static_cast<const char*>(data), static_cast<size_t>(done)));
  return done;
}

int __wrap_fdatasync(int fd) {
  const std::string path = ramet::chunk::testing::path_of(fd);
  RecordedDisk* const disk = RecordedDisk::of(path);
  if (!disk) return __real_fdatasync(fd);
  disk->note(Kind::kSync, path);
  return 0;
}

// Of directories only, here.
int __wrap_fsync(int fd) {
  const std::string path = ramet::chunk::testing::path_of(fd);
  RecordedDisk* const disk = RecordedDisk::of(path);
  if (!disk) return __real_fsync(fd);
  disk->note(Kind::kSyncDirectory, path);
  return 0;
}

int __wrap_renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) {
  const std::string path = ramet::chunk::testing::path_of(from_directory, from);
  const int rc = __real_renameat2(from_directory, from, to_directory, to, flags);
  if (RecordedDisk* const disk = RecordedDisk::of(path); disk && rc == 0)
    disk->note(Kind::kRename, path, ramet::chunk::testing::path_of(to_directory, to));
  return rc;
}

int __wrap_unlinkat(int directory, const char* name, int flags) {
  const std::string path = ramet::chunk::testing::path_of(directory, name);
  const int rc = __real_unlinkat(directory, name, flags);
  if (RecordedDisk* const disk = RecordedDisk::of(path); disk && rc == 0) disk->note(Kind::kRemove, path);
  return rc;
}

}  // extern "C"
