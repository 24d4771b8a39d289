#include "chunk/cache_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/all_zero.h"
#include "base/file.h"
#include "chunk/digest.h"
#include "chunk/recipe.h"

namespace ramet::chunk {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kChecked = "checked-", kUnfinished = "unfinished-";
constexpr mode_t kFileMode = 0400;  // so that a descriptor of it cannot be opened again for writing by another user

Result<std::vector<std::string>> names_in(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> out;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    out.push_back(it->path().filename());
  if (error) return fail_errno("list " + directory, error.value());
  return out;
}

Result<UniqueFd> lock_directory(const std::string& path) {
  TRY_ASSIGN(UniqueFd lock, ramet::open_file(path + "/lock", O_RDWR | O_CREAT, 0600));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return fail_errno("lock " + path);
  return fail(ErrorKind::kConflict, "the chunk cache in " + path + " is open in another process");
}

Status move_all(const std::string& from, const std::string& to) {
  TRY_ASSIGN(const std::vector<std::string> names, names_in(from));
  for (const std::string& name : names)
    if (::rename((from + "/" + name).c_str(), (to + "/" + name).c_str()) < 0) return fail_errno("move " + from + "/" + name);
  return {};
}

Status remove_unfinished(const std::string& directory) {
  TRY_ASSIGN(const std::vector<std::string> names, names_in(directory));
  for (const std::string& name : names)
    if (name.starts_with(kUnfinished) && ::unlink((directory + "/" + name).c_str()) < 0) return fail_errno("remove " + name);
  return {};
}

// Blocks of zeros become holes.
Status write_sparse(int fd, std::span<const std::byte> chunk) {
  const auto zero_at = [&](size_t at) { return all_zero(chunk.subspan(at, std::min(kBlockBytes, chunk.size() - at))); };
  for (size_t at = 0; at < chunk.size();) {
    size_t end = at;
    while (end < chunk.size() && !zero_at(end)) end += kBlockBytes;
    end = std::min(end, chunk.size());
    if (end > at) TRY(pwrite_all(fd, chunk.subspan(at, end - at), at));
    at = end == at ? at + kBlockBytes : end;
  }
  if (::ftruncate(fd, static_cast<off_t>(chunk.size())) < 0) return fail_errno("give a cached chunk its length");
  return {};
}

Result<struct stat> look_at(int fd) {
  struct stat st;
  if (::fstat(fd, &st) < 0) return fail_errno("look at a cached chunk");
  return st;
}

uint64_t allocated_bytes(const struct stat& st) { return static_cast<uint64_t>(st.st_blocks) * 512; }

}  // namespace

Result<std::unique_ptr<CacheDirectory>> CacheDirectory::open(const std::string& path, Trust trust) {
  TRY_ASSIGN(std::string boot, read_file("/proc/sys/kernel/random/boot_id"));
  while (boot.ends_with('\n')) boot.pop_back();
  const std::string checked_name = std::string(kChecked) + boot;
  const std::string checked = path + "/" + checked_name, unchecked = path + "/unchecked";
  TRY(make_directories(checked, 0700));
  TRY(make_directories(unchecked, 0700));
  TRY_ASSIGN(UniqueFd lock, lock_directory(path));
  TRY_ASSIGN(const std::vector<std::string> names, names_in(path));
  for (const std::string& name : names) {
    if (!name.starts_with(kChecked) || (name == checked_name && trust == Trust::kSameBoot)) continue;
    TRY(move_all(path + "/" + name, unchecked));
    if (name != checked_name && ::rmdir((path + "/" + name).c_str()) < 0) return fail_errno("remove " + path + "/" + name);
  }
  TRY(remove_unfinished(checked));
  TRY(remove_unfinished(unchecked));
  return std::unique_ptr<CacheDirectory>(new CacheDirectory(checked, unchecked, std::move(lock)));
}

std::string CacheDirectory::path_of(const File& file) const {
  return (file.checked ? checked_ : unchecked_) + "/" + file.digest.to_hex();
}

Result<std::vector<CacheDirectory::File>> CacheDirectory::list() const {
  struct Found {
    File file;
    timespec used;
  };
  std::vector<Found> found;
  for (const std::string& directory : {unchecked_, checked_}) {
    TRY_ASSIGN(const std::vector<std::string> names, names_in(directory));
    for (const std::string& name : names) {
      const std::optional<Digest> digest = Digest::from_hex(name);
      struct stat st;
      if (!digest || ::stat((directory + "/" + name).c_str(), &st) < 0) continue;
      found.push_back({{*digest, allocated_bytes(st), directory == checked_}, st.st_mtim});
    }
  }
  std::ranges::stable_sort(found, [](const Found& a, const Found& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  std::vector<File> out;
  for (const Found& f : found) out.push_back(f.file);
  return out;
}

CacheDirectory::Unfinished::~Unfinished() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

Result<CacheDirectory::Unfinished> CacheDirectory::write(std::span<const std::byte> chunk) {
  Unfinished file(checked_ + "/" + std::string(kUnfinished) + std::to_string(next_unfinished_++));
  TRY_ASSIGN(const UniqueFd fd, ramet::open_file(file.path_, O_WRONLY | O_CREAT | O_EXCL, kFileMode));
  TRY(write_sparse(fd.get(), chunk));
  TRY_ASSIGN(const struct stat st, look_at(fd.get()));
  file.bytes_ = allocated_bytes(st);
  return file;
}

Status CacheDirectory::publish(Unfinished file, const Digest& digest) {
  const std::string path = path_of({.digest = digest, .checked = true});
  if (::rename(file.path_.c_str(), path.c_str()) < 0) return fail_errno("name " + path);
  file.path_.clear();
  return {};
}

Result<UniqueFd> CacheDirectory::open_file(const File& file) const { return ramet::open_file(path_of(file), O_RDONLY); }

Status CacheDirectory::check(const File& file) const {
  TRY_ASSIGN(const UniqueFd fd, open_file(file));
  TRY_ASSIGN(const struct stat st, look_at(fd.get()));
  const std::string name = "cached chunk " + file.digest.to_hex();
  if (st.st_size < 0 || static_cast<uint64_t>(st.st_size) > kMaxChunkBlocks * kBlockBytes)
    return fail(ErrorKind::kCorrupt, name + " has " + std::to_string(st.st_size) + " bytes");
  std::vector<std::byte> bytes(static_cast<size_t>(st.st_size));
  TRY(pread_exact(fd.get(), bytes, 0));
  if (digest_of(bytes) != file.digest) return fail(ErrorKind::kCorrupt, name + " does not have its digest");
  return {};
}

Status CacheDirectory::accept(File& file) {
  const std::string before = path_of(file);
  file.checked = true;
  if (::rename(before.c_str(), path_of(file).c_str()) == 0) return {};
  file.checked = false;
  return fail_errno("move " + before);
}

Status CacheDirectory::remove(const File& file) {
  if (::unlink(path_of(file).c_str()) < 0 && errno != ENOENT) return fail_errno("remove " + path_of(file));
  return {};
}

}  // namespace ramet::chunk
