#include "commit/tar_writer.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/mapped_region.h"
#include "base/utf8_names.h"
#include "commit/file_tree.h"

namespace ramet::commit {
namespace {

struct FreeEntry {
  void operator()(archive_entry* e) const { archive_entry_free(e); }
};
using EntryPointer = std::unique_ptr<archive_entry, FreeEntry>;

void set_data(archive_entry* e, const TarMember& member) {
  archive_entry_set_size(e, S_ISREG(member.mode) ? static_cast<int64_t>(member.bytes) : 0);
  if (!S_ISREG(member.mode) || member.bytes == 0) return;
  for (const ByteRange& range : member.data)
    archive_entry_sparse_add_entry(e, static_cast<int64_t>(range.offset), static_cast<int64_t>(range.bytes));
  if (member.data.empty()) archive_entry_sparse_add_entry(e, 0, 0);  // nothing but a hole
}

EntryPointer entry_of(const TarMember& member) {
  EntryPointer e(archive_entry_new());
  if (!e) return e;
  archive_entry_set_pathname(e.get(), member.path.c_str());
  archive_entry_set_mode(e.get(), member.mode);
  archive_entry_set_uid(e.get(), member.uid);
  archive_entry_set_gid(e.get(), member.gid);
  archive_entry_set_mtime(e.get(), member.mtime_s, static_cast<long>(member.mtime_ns));
  if (!member.hard_link.empty()) {
    archive_entry_set_hardlink(e.get(), member.hard_link.c_str());
    archive_entry_set_size(e.get(), 0);
    return e;
  }
  if (S_ISLNK(member.mode)) archive_entry_set_symlink(e.get(), member.symlink.c_str());
  if (S_ISCHR(member.mode) || S_ISBLK(member.mode)) {
    archive_entry_set_rdevmajor(e.get(), member.device_major);
    archive_entry_set_rdevminor(e.get(), member.device_minor);
  }
  set_data(e.get(), member);
  for (const auto& [name, value] : member.xattrs)
    archive_entry_xattr_add_entry(e.get(), name.c_str(), value.data(), value.size());
  for (const AclEntry& entry : member.acl)
    archive_entry_acl_add_entry(e.get(), entry.is_default ? ARCHIVE_ENTRY_ACL_TYPE_DEFAULT : ARCHIVE_ENTRY_ACL_TYPE_ACCESS,
                                entry.permissions, entry.tag, entry.id, nullptr);
  return e;
}

// Zeros that take no memory, in large pieces: holes are told to libarchive as such.
Result<std::span<const std::byte>> zeros() {
  static const Result<MappedRegion> region =
      MappedRegion::map(64u << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  if (!region) return tl::unexpected<Error>(region.error());
  return std::span<const std::byte>(region->bytes());
}

}  // namespace

Result<std::unique_ptr<TarWriter>> TarWriter::open(Sink sink) {
  std::unique_ptr<TarWriter> out(new TarWriter(std::move(sink)));
  out->archive_ = archive_write_new();
  if (!out->archive_) return fail(ErrorKind::kNoMemory, "no memory for an archive");
  archive_write_set_format_pax(out->archive_);
  archive_write_set_options(out->archive_, "xattrheader=SCHILY");  // the one that GNU tar knows
  archive_write_set_bytes_per_block(out->archive_, 256 << 10);
  archive_write_set_bytes_in_last_block(out->archive_, 1);
  const Utf8Names names;
  // Without a locale libarchive would crash converting names; they then stay as they are, and say so.
  if (!names.in_effect()) archive_write_set_options(out->archive_, "hdrcharset=BINARY");
  if (archive_write_open(out->archive_, out.get(), nullptr, forward, nullptr) != ARCHIVE_OK) return out->failed();
  return out;
}

TarWriter::~TarWriter() {
  // Freeing closes, if that was not done, which would write an end.
  if (!error_) error_ = Error(ErrorKind::kCancelled, "the tar was given up");
  if (archive_) archive_write_free(archive_);
}

ssize_t TarWriter::forward(archive* a, void* self, const void* bytes, size_t count) {
  TarWriter& writer = *static_cast<TarWriter*>(self);
  if (writer.error_) return -1;
  const Status done = writer.sink_({static_cast<const std::byte*>(bytes), count});
  if (done) return static_cast<ssize_t>(count);
  writer.error_ = done.error();
  archive_set_error(a, EIO, "cannot be written");
  return -1;
}

tl::unexpected<Error> TarWriter::failed() const {
  if (error_) return tl::unexpected<Error>(*error_);
  const char* said = archive_error_string(archive_);
  return fail(ErrorKind::kInvalid, "'" + shown(path_) + "' cannot stand in a tar: " + shown(said ? said : "no reason given"));
}

Status TarWriter::begin(const TarMember& member) {
  const Utf8Names names;
  path_ = member.path;
  const EntryPointer e = entry_of(member);
  if (!e) return fail(ErrorKind::kNoMemory, "no memory for '" + shown(path_) + "'");
  bytes_ = S_ISREG(member.mode) && member.hard_link.empty() ? member.bytes : 0;
  at_ = 0;
  // Names that are no UTF-8 stay as they are, with a warning.
  if (const int done = archive_write_header(archive_, e.get()); done != ARCHIVE_OK && done != ARCHIVE_WARN) return failed();
  return {};
}

Status TarWriter::put(std::span<const std::byte> bytes) {
  at_ += bytes.size();
  while (!bytes.empty()) {
    const la_ssize_t n = archive_write_data(archive_, bytes.data(), bytes.size());
    if (n <= 0) return failed();
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

// libarchive passes over what lies in a hole.
Status TarWriter::put_zeros(uint64_t until) {
  TRY_ASSIGN(const std::span<const std::byte> nothing, zeros());
  while (at_ < until) TRY(put(nothing.first(std::min<uint64_t>(nothing.size(), until - at_))));
  return {};
}

Status TarWriter::write(uint64_t offset, std::span<const std::byte> bytes) {
  TRY(put_zeros(offset));
  return put(bytes);
}

Status TarWriter::end() {
  TRY(put_zeros(bytes_));
  const Utf8Names names;
  return archive_write_finish_entry(archive_) == ARCHIVE_OK ? Status() : failed();
}

Status TarWriter::close() { return archive_write_close(archive_) == ARCHIVE_OK ? Status() : failed(); }

}  // namespace ramet::commit
