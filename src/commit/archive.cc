#include "commit/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/all_zero.h"
#include "base/checked.h"
#include "base/file.h"
#include "base/utf8_names.h"
#include "commit/tar_use.h"

namespace ramet::commit {
namespace {

constexpr size_t kReadBytes = 256u << 10, kSpoolAlignment = 4096;
constexpr uint64_t kHeadersPerFile = 4096;  // bytes
constexpr size_t kMostXattrs = 128, kMostXattrBytes = 64u << 10;
constexpr std::string_view kOpaque = ".wh..wh..opq";

struct FreeArchive {
  void operator()(archive* a) const { archive_read_free(a); }
};
using ArchivePointer = std::unique_ptr<archive, FreeArchive>;

struct FreeEntry {
  void operator()(archive_entry* e) const { archive_entry_free(e); }
};

tl::unexpected<Error> refuse(std::string_view member, const std::string& reason) {
  return fail(ErrorKind::kInvalid, "'" + shown(member) + "' " + reason);
}
tl::unexpected<Error> failed(archive* a, std::string_view doing, ErrorKind kind) {
  const char* said = archive_error_string(a);
  const int err = archive_errno(a);
  if (err == EACCES || err == EPERM || err == ENOENT || err == EIO) kind = kind_of_errno(err);
  return fail(kind, std::string(doing) + ": " + shown(said ? said : "damaged"));
}

// The bytes of an archive on their way to libarchive.
struct Feed {
  FileRange from;
  uint64_t read = 0;
  const OnBytes& on_bytes;
  std::vector<std::byte> buffer = std::vector<std::byte>(kReadBytes);
  std::optional<Error> error;
};
la_ssize_t feed(archive* a, void* context, const void** out) {
  Feed& f = *static_cast<Feed*>(context);
  const size_t n = std::min<uint64_t>(f.buffer.size(), f.from.bytes - f.read);
  if (const Status done = pread_exact(f.from.fd, std::span(f.buffer).first(n), f.from.offset + f.read); !done) {
    f.error = done.error();
    archive_set_error(a, EIO, "cannot be read");
    return ARCHIVE_FATAL;
  }
  f.read += n;
  if (f.on_bytes) f.on_bytes(f.read);
  *out = f.buffer.data();
  return static_cast<la_ssize_t>(n);
}

const char* name_of_type(__LA_MODE_T type) {
  switch (type) {
    case AE_IFBLK: return "a block device";
    case AE_IFCHR: return "a character device";
    case AE_IFIFO: return "a FIFO";
    case AE_IFSOCK: return "a socket";
    default: return "of a type that is not known";
  }
}

Result<Attributes> attributes_of(archive_entry* e, std::string_view path) {
  Attributes out;
  out.mode = archive_entry_perm(e) & 07777;
  if (archive_entry_uid(e) < 0 || archive_entry_uid(e) > UINT32_MAX || archive_entry_gid(e) < 0 ||
      archive_entry_gid(e) > UINT32_MAX)
    return refuse(path, "has an owner that no 32-bit number can name");
  out.uid = static_cast<uint32_t>(archive_entry_uid(e));
  out.gid = static_cast<uint32_t>(archive_entry_gid(e));
  out.mtime_s = archive_entry_mtime(e);
  const long ns = archive_entry_mtime_nsec(e);
  if (ns > 0 && ns < 1'000'000'000) out.mtime_ns = static_cast<uint32_t>(ns);
  size_t bytes = 0;
  const char* name;
  const void* value;
  size_t size;
  archive_entry_xattr_reset(e);
  while (archive_entry_xattr_next(e, &name, &value, &size) == ARCHIVE_OK) {
    const std::string_view key = name ? name : "";
    if (!key.starts_with("user.") && !key.starts_with("security.")) continue;
    bytes += key.size() + size;
    if (key.size() > FileTree::kMaxName || bytes > kMostXattrBytes || out.xattrs.size() >= kMostXattrs)
      return refuse(path, "has more extended attributes than an inode can hold");
    out.xattrs.emplace_back(key, std::string(static_cast<const char*>(value), size));
  }
  return out;
}

class Unpacker {
 public:
  Unpacker(archive* a, FileTree& tree, Spool& spool, Whiteouts whiteouts)
      : archive_(a), tree_(tree), spool_(spool), whiteouts_(whiteouts) {}

  Status take(archive_entry* e, const std::string& path) {
    if (whiteouts_ == Whiteouts::kRemove) {
      TRY_ASSIGN(const bool taken, take_whiteout(path));
      if (taken) return {};
    }
    if (const char* target = archive_entry_hardlink(e)) return tree_.add_hard_link(path, target);
    TRY_ASSIGN(Attributes attributes, attributes_of(e, path));
    switch (const __LA_MODE_T type = archive_entry_filetype(e)) {
      case AE_IFDIR: return tree_.add_directory(path, std::move(attributes));
      case AE_IFLNK: {
        const char* target = archive_entry_symlink(e);
        return tree_.add_symlink(path, std::move(attributes), target ? target : "");
      }
      case AE_IFREG: return take_file(e, path, std::move(attributes));
      default: return refuse(path, std::string("is ") + name_of_type(type) + "; files, directories and links are taken");
    }
  }

 private:
  Result<bool> take_whiteout(const std::string& path) {
    const size_t slash = path.rfind('/');
    const std::string directory = slash == path.npos ? "." : path.substr(0, slash);
    const std::string name = slash == path.npos ? path : path.substr(slash + 1);
    if (!name.starts_with(kWhiteout)) return false;
    if (const std::string gone = name.substr(kWhiteout.size()); gone.empty() || gone == ".")
      return refuse(path, "takes away a file without a name");
    if (name == kOpaque)
      TRY(tree_.remove_children(directory));
    else
      TRY(tree_.remove(directory + "/" + name.substr(kWhiteout.size())));
    return true;
  }

  Status take_file(archive_entry* e, const std::string& path, Attributes attributes) {
    const int64_t size = archive_entry_size(e);
    if (size < 0) return refuse(path, "has a negative size");
    Result<SpoolRange> range = spool_.reserve(static_cast<uint64_t>(size));
    if (!range) return refuse(path, range.error().message());
    // The tree first: a name that is refused costs no unpacking.
    TRY(tree_.add_file(path, std::move(attributes), *range));
    for (;;) {
      const void* data;
      size_t bytes;
      la_int64_t offset;
      const int got = archive_read_data_block(archive_, &data, &bytes, &offset);
      if (got == ARCHIVE_EOF) return {};
      if (got != ARCHIVE_OK) return failed(archive_, "'" + shown(path) + "'", ErrorKind::kCorrupt);
      if (offset < 0) return refuse(path, "has data before its beginning");
      TRY(spool_.write(*range, static_cast<uint64_t>(offset), {static_cast<const std::byte*>(data), bytes}));
    }
  }

  archive* archive_;
  FileTree& tree_;
  Spool& spool_;
  Whiteouts whiteouts_;
};

Result<ArchivePointer> open_tar(Feed& source) {
  ArchivePointer a(archive_read_new());
  if (!a) return fail(ErrorKind::kNoMemory, "no memory for an archive");
  archive_read_support_format_tar(a.get());
  archive_read_support_filter_gzip(a.get());
  archive_read_support_filter_bzip2(a.get());
  archive_read_support_filter_xz(a.get());
  archive_read_support_filter_zstd(a.get());
  if (archive_read_open(a.get(), &source, nullptr, feed, nullptr) != ARCHIVE_OK)
    return failed(a.get(), "open the archive", ErrorKind::kCorrupt);
  return a;
}

Status read_members(archive* a, Unpacker& unpacker, uint64_t max_stream_bytes) {
  for (;;) {
    archive_entry* e;
    const int got = archive_read_next_header(a, &e);
    if (got == ARCHIVE_EOF) return {};
    if (got != ARCHIVE_OK && got != ARCHIVE_WARN) return failed(a, "read the archive", ErrorKind::kCorrupt);
    const char* path = archive_entry_pathname(e);
    if (!path) return fail(ErrorKind::kCorrupt, "a member of the archive has no name");
    TRY(unpacker.take(e, path));
    // Members that are passed over count too.
    if (static_cast<uint64_t>(archive_filter_bytes(a, 0)) > max_stream_bytes)
      return refuse(path, "lies behind " + std::to_string(max_stream_bytes) + " bytes of archive, which is the limit");
  }
}

}  // namespace

Result<SpoolRange> Spool::reserve(uint64_t bytes) {
  const uint64_t left = limits_.max_unpacked_bytes - reserved_bytes_;
  if (bytes > left)
    return fail(ErrorKind::kInvalid, "has " + std::to_string(bytes) + " bytes; of the " +
                                         std::to_string(limits_.max_unpacked_bytes) + " that may be unpacked " +
                                         std::to_string(left) + " are left");
  reserved_bytes_ += bytes;
  const SpoolRange range{end_, bytes};
  end_ += (bytes + kSpoolAlignment - 1) / kSpoolAlignment * kSpoolAlignment;
  if (::ftruncate(fd(), static_cast<off_t>(end_)) < 0) return fail_errno("make room for unpacked files");
  return range;
}

Status Spool::write(const SpoolRange& range, uint64_t offset, std::span<const std::byte> bytes) {
  if (!range_within(offset, bytes.size(), range.bytes))
    return fail(ErrorKind::kInvalid, std::to_string(bytes.size()) + " bytes at " + std::to_string(offset) + " of a file of " +
                                         std::to_string(range.bytes));
  if (all_zero(bytes)) return {};
  if (admitted_bytes_ < bytes.size()) {
    const uint64_t more = std::max<uint64_t>(bytes.size(), kAdmitBytes);
    TRY(limits_.admit(more));
    admitted_bytes_ = more;
  }
  admitted_bytes_ -= bytes.size();
  return pwrite_all(fd(), bytes, range.offset + offset);
}

Status read_tar(const FileRange& archive, Whiteouts whiteouts, FileTree& tree, Spool& spool, const OnBytes& on_bytes) {
  const Utf8Names names;
  Feed source{.from = archive, .on_bytes = on_bytes};
  Result<ArchivePointer> a = open_tar(source);
  Status done;
  if (a) {
    Unpacker unpacker(a->get(), tree, spool, whiteouts);
    const ImageLimits& limits = spool.limits();
    done = read_members(a->get(), unpacker, limits.max_unpacked_bytes + kHeadersPerFile * limits.max_files);
  } else {
    done = tl::unexpected<Error>(std::move(a).error());
  }
  if (!done && source.error) return tl::unexpected<Error>(*source.error);
  return done;
}

Status read_directory(const std::string& path, FileTree& tree, Spool& spool) {
  const Utf8Names names;
  const ArchivePointer a(archive_read_disk_new());
  const std::unique_ptr<archive_entry, FreeEntry> e(archive_entry_new());
  if (!a || !e) return fail(ErrorKind::kNoMemory, "no memory for a directory");
  archive_read_disk_set_symlink_physical(a.get());
  archive_read_disk_set_behavior(a.get(), ARCHIVE_READDISK_NO_TRAVERSE_MOUNTS);
  if (archive_read_disk_open(a.get(), path.c_str()) != ARCHIVE_OK) return failed(a.get(), "open " + path, ErrorKind::kIo);
  Unpacker unpacker(a.get(), tree, spool, Whiteouts::kOrdinary);
  std::map<std::pair<int64_t, int64_t>, std::string> linked;  // by device and inode
  for (;;) {
    const int got = archive_read_next_header2(a.get(), e.get());
    if (got == ARCHIVE_EOF) return {};
    if (got != ARCHIVE_OK && got != ARCHIVE_WARN) return failed(a.get(), "read " + path, ErrorKind::kIo);
    std::string below = std::string(archive_entry_pathname(e.get())).substr(path.size());
    below.insert(0, ".");
    if (archive_entry_nlink(e.get()) > 1 && archive_entry_filetype(e.get()) != AE_IFDIR) {
      const auto [it, first] = linked.try_emplace({archive_entry_dev(e.get()), archive_entry_ino64(e.get())}, below);
      if (!first) archive_entry_set_hardlink(e.get(), it->second.c_str());
    }
    TRY(unpacker.take(e.get(), below));
    if (archive_read_disk_can_descend(a.get())) archive_read_disk_descend(a.get());
  }
}

}  // namespace ramet::commit
