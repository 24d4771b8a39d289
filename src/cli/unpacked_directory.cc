#include "cli/unpacked_directory.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/file.h"
#include "base/place.h"
#include "base/utf8_names.h"
#include "cli/text.h"
#include "cli/work_directory.h"

namespace ramet::cli {
namespace {

constexpr size_t kReadBytes = 256u << 10;

struct FreeReader {
  void operator()(archive* a) const { archive_read_free(a); }
};
struct FreeWriter {
  void operator()(archive* a) const { archive_write_free(a); }
};

tl::unexpected<Error> failed(archive* a, ErrorKind kind, const std::string& what) {
  const char* said = archive_error_string(a);
  const int err = archive_errno(a);
  const std::string message = printable(what) + ": " + printable(said ? said : "no reason given");
  if (err == ENOSPC || err == EDQUOT || err == EFBIG || err == EACCES || err == EIO) return fail_errno(message, err);
  return fail(kind, message);
}

// libarchive's names are relative to where we are.
class Inside {
 public:
  static Result<Inside> go_to(const std::string& directory) {
    TRY_ASSIGN(UniqueFd before, open_file(".", O_PATH | O_DIRECTORY));
    if (::chdir(directory.c_str()) < 0) return fail_errno("go to " + directory);
    return Inside(std::move(before));
  }
  Inside(Inside&&) noexcept = default;
  ~Inside() { static_cast<void>(leave()); }
  Status leave() {
    const UniqueFd before = std::move(before_);
    if (before && ::fchdir(before.get()) < 0) return fail_errno("go back from the new directory");
    return {};
  }

 private:
  explicit Inside(UniqueFd before) : before_(std::move(before)) {}
  UniqueFd before_;
};

class Unpacking {
 public:
  explicit Unpacking(const ReadSome& read) : read_(read), in_(archive_read_new()), out_(archive_write_disk_new()) {}

  Result<Unpacked> run() {
    if (!in_ || !out_) return fail(ErrorKind::kNoMemory, "no memory for an archive");
    int flags = ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_ACL | ARCHIVE_EXTRACT_XATTR |
                ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS;
    if (is_root_) flags |= ARCHIVE_EXTRACT_OWNER;
    archive_write_disk_set_options(out_.get(), flags);
    archive_read_support_format_tar(in_.get());
    if (archive_read_open(in_.get(), this, nullptr, feed, nullptr) != ARCHIVE_OK) return in_failed("open the tar");
    archive_entry* e = nullptr;
    int got;
    while ((got = archive_read_next_header(in_.get(), &e)) == ARCHIVE_OK || got == ARCHIVE_WARN) TRY(take(e));
    if (got != ARCHIVE_EOF) return in_failed("read the tar");
    TRY(read_rest());
    // Modes and times of directories are set now.
    if (archive_write_close(out_.get()) < ARCHIVE_WARN) return failed(out_.get(), ErrorKind::kIo, "close the directory");
    if (root_time_) {
      const timespec times[] = {{0, UTIME_OMIT}, *root_time_};
      if (::utimensat(AT_FDCWD, ".", times, 0) < 0) return fail_errno("set the time of the directory");
    }
    return std::move(result_);
  }

  // Its own error is the sender's then, not that of the directory.
  bool read_failed() const { return error_.has_value(); }

 private:
  static la_ssize_t feed(archive* a, void* self, const void** out) {
    Unpacking& u = *static_cast<Unpacking*>(self);
    const Result<size_t> n = u.read_(u.buffer_);
    *out = u.buffer_.data();
    if (n) return static_cast<la_ssize_t>(*n);
    u.error_ = n.error();
    archive_set_error(a, EIO, "cannot be read");
    return ARCHIVE_FATAL;
  }

  // What the sender says last is whether all of it came.
  Status read_rest() {
    for (;;) {
      const Result<size_t> n = read_(buffer_);
      if (!n) error_ = n.error();
      if (error_) return tl::unexpected<Error>(*error_);
      if (*n == 0) return {};
    }
  }

  tl::unexpected<Error> in_failed(const std::string& what) {
    if (error_) return tl::unexpected<Error>(*error_);
    return failed(in_.get(), ErrorKind::kCorrupt, what);
  }

  Status take(archive_entry* e) {
    const char* name = archive_entry_pathname(e);
    if (!name) return fail(ErrorKind::kCorrupt, "a member of the tar has no name");
    const std::string path = name;
    const __LA_MODE_T type = archive_entry_filetype(e);
    const char* link = archive_entry_hardlink(e);
    if (!is_root_ && (link ? left_out_.contains(link) : type == AE_IFCHR || type == AE_IFBLK)) {
      left_out_.insert(path);
      result_.devices++;
      return {};
    }
    if (path == "./" || path == ".") root_time_ = {archive_entry_mtime(e), archive_entry_mtime_nsec(e)};
    bool whole = true;
    TRY(check(archive_write_header(out_.get(), e), path, whole));
    TRY(copy_data(path));
    TRY(check(archive_write_finish_entry(out_.get()), path, whole));
    result_.files++;
    if (!whole) result_.changed++;
    return {};
  }

  Status check(int done, const std::string& path, bool& whole) {
    if (done == ARCHIVE_OK) return {};
    const int err = archive_errno(out_.get());
    const bool full = err == ENOSPC || err == EDQUOT;  // of an attribute it is a warning to libarchive
    if (done != ARCHIVE_WARN || full) return failed(out_.get(), ErrorKind::kInvalid, path);
    if (result_.not_whole.empty()) {
      const char* said = archive_error_string(out_.get());
      result_.not_whole = printable(path) + ": " + printable(said ? said : "no reason given");
    }
    whole = false;
    return {};
  }

  // A full disk is a warning to libarchive.
  Status copy_data(const std::string& path) {
    const void* data;
    size_t bytes;
    la_int64_t offset;
    int got;
    while ((got = archive_read_data_block(in_.get(), &data, &bytes, &offset)) == ARCHIVE_OK)
      if (archive_write_data_block(out_.get(), data, bytes, offset) < 0) return failed(out_.get(), ErrorKind::kIo, path);
    return got == ARCHIVE_EOF ? Status() : Status(in_failed(path));
  }

  const ReadSome& read_;
  const std::unique_ptr<archive, FreeReader> in_;
  const std::unique_ptr<archive, FreeWriter> out_;
  const bool is_root_ = ::geteuid() == 0;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kReadBytes);
  std::optional<Error> error_;  // of what is read
  std::set<std::string> left_out_;
  std::optional<timespec> root_time_;  // libarchive sets it at once, for the directory is there, and then changes it
  Unpacked result_;
};

}  // namespace

Result<Unpacked> unpack_tar(const ReadSome& read, const std::string& directory) {
  TRY_ASSIGN(WorkDirectory work, WorkDirectory::beside(directory));
  TRY_ASSIGN(Inside inside, Inside::go_to(work.path()));
  const Utf8Names names;
  Unpacking unpacking(read);
  Result<Unpacked> unpacked = unpacking.run();
  if (!unpacked && unpacking.read_failed()) return unpacked;
  TRY_ASSIGN(Unpacked made, naming(directory, std::move(unpacked)));
  TRY(inside.leave());
  TRY(work.publish());
  return made;
}

}  // namespace ramet::cli
