#include "chunk/directory_storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>
#include <optional>

#include "base/file.h"
#include "chunk/digest.h"
#include "chunk/frame.h"

namespace ramet::chunk {
namespace {

// Open for frames, of 64 MiB each. Which one goes for another is chance, as ids are.
constexpr size_t kMostFiles = 64;

constexpr std::string_view kSuffix = ".pack", kUnfinished = ".unfinished", kLock = "lock";

std::optional<PackId> id_of(std::string_view name) {
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  PackId id;
  return from_hex(name, id) ? std::optional(id) : std::nullopt;
}

std::string message(const char* what, const PackId& id) { return std::string(what) + " pack " + to_hex(id); }

struct CloseDirectory {
  void operator()(DIR* d) const { ::closedir(d); }
};

Result<std::vector<std::string>> names_in(int directory) {
  // A descriptor of its own: readdir moves the offset.
  UniqueFd fd(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail_errno("open the directory of packs");
  std::unique_ptr<DIR, CloseDirectory> d(::fdopendir(fd.get()));
  if (!d) return fail_errno("read the directory of packs");
  fd.release();
  std::vector<std::string> out;
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(d.get());
    if (entry) {
      out.emplace_back(entry->d_name);
      continue;
    }
    if (errno != 0) return fail_errno("read the directory of packs");
    return out;
  }
}

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kPackAlignment}); }
};

// For reads past the page cache: memory of this thread, which is used again and has faulted in by then.
std::span<std::byte> frame_window(size_t bytes) {
  constexpr size_t kMost = kMaxFrameBytes + 2 * kPackAlignment;
  static thread_local const std::unique_ptr<std::byte[], AlignedDelete> window(new (std::align_val_t{kPackAlignment})
                                                                                   std::byte[kMost]);
  return {window.get(), std::min(bytes, kMost)};
}

}  // namespace

std::string pack_name(const PackId& id) { return to_hex(id) + std::string(kSuffix); }

Result<std::unique_ptr<DirectoryStorage>> DirectoryStorage::open(const std::string& path) {
  TRY(make_lasting_directories(path, 0700));
  TRY_ASSIGN(UniqueFd directory, open_file(path, O_RDONLY | O_DIRECTORY));
  UniqueFd lock(::openat(directory.get(), std::string(kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return fail_errno("open " + path + "/" + std::string(kLock));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) < 0) {
    if (errno != EWOULDBLOCK) return fail_errno("lock " + path);
    return fail(ErrorKind::kConflict, "the store in " + path + " is open in another process");
  }
  std::unique_ptr<DirectoryStorage> storage(new DirectoryStorage(path, std::move(directory), std::move(lock)));
  TRY(storage->remove_unfinished());
  return storage;
}

Result<std::unique_ptr<DirectoryStorage>> DirectoryStorage::open_to_read(const std::string& path) {
  TRY_ASSIGN(UniqueFd directory, open_file(path, O_RDONLY | O_DIRECTORY));
  return std::unique_ptr<DirectoryStorage>(new DirectoryStorage(path, std::move(directory), UniqueFd()));
}

Status DirectoryStorage::check_may_change() const {
  return lock_ ? Status() : fail(ErrorKind::kPermission, "the packs in " + path_ + " were opened to be read");
}

Status DirectoryStorage::remove_unfinished() {
  TRY_ASSIGN(const std::vector<std::string> names, names_in(directory_.get()));
  for (const std::string& name : names)
    if (name.ends_with(kUnfinished) && ::unlinkat(directory_.get(), name.c_str(), 0) < 0) return fail_errno("remove " + name);
  return {};
}

Status DirectoryStorage::sync() const {
  if (::fsync(directory_.get()) < 0) return fail_errno("sync " + path_);
  return {};
}

Status DirectoryStorage::write(const PackId& id, std::span<const std::byte> bytes) {
  TRY(check_may_change());
  const std::string name = pack_name(id), unfinished = name + std::string(kUnfinished);
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  UniqueFd fd(::openat(directory_.get(), unfinished.c_str(), flags | O_DIRECT, 0600));
  if (!fd && errno == EINVAL) fd.reset(::openat(directory_.get(), unfinished.c_str(), flags, 0600));  // tmpfs, for one
  if (!fd) return fail_errno(message("create", id));
  Status done = write_all(fd.get(), bytes);
  if (done && ::fdatasync(fd.get()) < 0) done = fail_errno(message("sync", id));
  // Never over a pack that is there.
  if (done && ::renameat2(directory_.get(), unfinished.c_str(), directory_.get(), name.c_str(), RENAME_NOREPLACE) < 0)
    done = fail_errno(message("name", id));
  if (!done) {
    ::unlinkat(directory_.get(), unfinished.c_str(), 0);
    return tl::unexpected<Error>(std::move(done).error().with_context(message("write", id)));
  }
  return sync();
}

Status DirectoryStorage::read(const PackId& id, uint64_t offset, std::span<std::byte> out) const {
  if (out.size() <= kMaxFrameBytes && read_frame(id, offset, out)) return {};
  UniqueFd fd(::openat(directory_.get(), pack_name(id).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(message("open", id));
  // As below. Only a hint.
  if (out.size() <= kMaxFrameBytes) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  Status done = pread_exact(fd.get(), out, offset);
  if (!done) return tl::unexpected<Error>(std::move(done).error().with_context(message("read", id)));
  return {};
}

// A frame alone, whose reader waits for it: past the page cache it comes sooner, and nothing is read ahead, which would be
// several times its bytes. Who reads it again finds it decoded. False: not this way, for whatever reason.
bool DirectoryStorage::read_frame(const PackId& id, uint64_t offset, std::span<std::byte> out) const {
  const uint64_t begin = offset / kPackAlignment * kPackAlignment, before = offset - begin;
  const size_t bytes = (before + out.size() + kPackAlignment - 1) / kPackAlignment * kPackAlignment;
  const std::span<std::byte> window = frame_window(bytes);
  const FilePtr file = file_for_frames(id);
  if (!file) return false;
  const ssize_t n = ::pread(file->get(), window.data(), window.size(), static_cast<off_t>(begin));
  if (n < 0 || static_cast<size_t>(n) < before + out.size()) return false;
  std::ranges::copy(window.subspan(before, out.size()), out.begin());
  return true;
}

// Kept open: to open and close one takes a tenth of what the read does. Null: there is none, or not past the page cache.
DirectoryStorage::FilePtr DirectoryStorage::file_for_frames(const PackId& id) const {
  const std::lock_guard lock(mutex_);  // over the opening: remove() closes what was open before it
  struct stat st;
  if (const auto found = files_.find(id); found != files_.end()) {
    if (::fstat(found->second->get(), &st) == 0 && st.st_nlink != 0) return found->second;
    files_.erase(found);  // removed behind our back: what is in its place counts
  }
  UniqueFd fd(::openat(directory_.get(), pack_name(id).c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  if (!fd) return nullptr;
  const auto file = std::make_shared<const UniqueFd>(std::move(fd));
  const auto here = files_.insert_or_assign(id, file).first;
  if (files_.size() > kMostFiles) files_.erase(std::next(here) != files_.end() ? std::next(here) : files_.begin());
  return file;
}

Result<uint64_t> DirectoryStorage::size_bytes(const PackId& id) const {
  struct stat st;
  if (::fstatat(directory_.get(), pack_name(id).c_str(), &st, 0) < 0) return fail_errno(message("look at", id));
  return static_cast<uint64_t>(st.st_size);
}

Status DirectoryStorage::remove(const PackId& id) {
  TRY(check_may_change());
  const int failed = ::unlinkat(directory_.get(), pack_name(id).c_str(), 0) < 0 ? errno : 0;
  {
    const std::lock_guard lock(mutex_);
    files_.erase(id);
  }
  if (failed != 0 && failed != ENOENT) return fail_errno(message("remove", id), failed);
  return sync();
}

Result<std::vector<PackId>> DirectoryStorage::list() const {
  TRY_ASSIGN(const std::vector<std::string> names, names_in(directory_.get()));
  std::vector<PackId> out;
  for (const std::string& name : names)
    if (const std::optional<PackId> id = id_of(name)) out.push_back(*id);
  return out;
}

}  // namespace ramet::chunk
