#include "commit/disk_form.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "base/file.h"
#include "base/output_file.h"
#include "base/place.h"
#include "chunk/digest.h"
#include "commit/ext4_image.h"
#include "commit/oci_image.h"
#include "commit/program.h"
#include "commit/qcow2_header.h"

namespace ramet::commit {
namespace {

struct Source {
  UniqueFd fd;
  struct stat st {};
  uint64_t bytes() const { return static_cast<uint64_t>(st.st_size); }
};

// Not blocking: opening a FIFO must not wait for somebody to write.
Result<Source> open_source(const std::string& path) {
  Source out;
  TRY_ASSIGN(out.fd, open_file(path, O_RDONLY | O_NONBLOCK));
  if (::fstat(out.fd.get(), &out.st) < 0) return fail_errno(path);
  return out;
}
Result<Source> open_regular(const std::string& path) {
  TRY_ASSIGN(Source out, open_source(path));
  if (!S_ISREG(out.st.st_mode)) return fail(ErrorKind::kInvalid, path + " is no file");
  return out;
}

// A file is taken for the same while its identity, size and times are. A directory says too little about what is below it.
Digest digest_of(const ImportRequest& request, const Source& source) {
  std::string text = std::to_string(static_cast<int>(request.format));
  const auto add = [&](const auto& value) { text += " " + std::to_string(value); };
  add(source.st.st_dev);
  add(source.st.st_ino);
  add(source.bytes());
  add(source.st.st_mtim.tv_sec);
  add(source.st.st_mtim.tv_nsec);
  add(source.st.st_ctim.tv_sec);
  add(source.st.st_ctim.tv_nsec);
  add(request.disk_bytes);
  text += " " + request.tag + "\n" + request.name;
  if (S_ISDIR(source.st.st_mode)) add(wall_ns());
  return chunk::digest_of(as_bytes(text));
}

tl::unexpected<Error> too_large(const std::string& what, uint64_t bytes, const ImageLimits& limits) {
  return fail(ErrorKind::kInvalid, what + " is a disk of " + std::to_string(bytes) + " bytes, the limit is " +
                                       std::to_string(limits.max_disk_bytes));
}

Result<UniqueFd> raw_disk(const ImportRequest& request, Source source) {
  if (source.bytes() > request.limits.max_disk_bytes) return too_large(request.path, source.bytes(), request.limits);
  return std::move(source.fd);
}

// The header is checked by us before qemu-img opens the file, which would open what the header names.
Result<UniqueFd> qcow2_disk(const ImportRequest& request, const Source& source, const OnProgress& progress) {
  std::array<std::byte, kQcow2HeaderBytes> head{};
  const size_t bytes = std::min<uint64_t>(head.size(), source.bytes());
  TRY(pread_exact(source.fd.get(), std::span(head).first(bytes), 0));
  TRY_ASSIGN(const Qcow2Header header, decode_qcow2_header(std::span(head).first(bytes), request.limits.max_disk_bytes));
  TRY_ASSIGN(OutputFile disk, OutputFile::temporary(request.work_directory));
  if (::ftruncate(disk.fd(), static_cast<off_t>(header.disk_bytes)) < 0) return fail_errno("make room for the disk");
  const auto tell = [&]() -> Status {
    struct stat st {};
    if (progress && ::fstat(disk.fd(), &st) == 0)
      progress({std::min(static_cast<uint64_t>(st.st_blocks) * 512, header.disk_bytes), header.disk_bytes, "convert"});
    return request.limits.admit(kAdmitBytes);
  };
  TRY(request.limits.admit(kAdmitBytes));
  TRY(run_program({.argv = {"qemu-img", "convert", "-f", "qcow2", "-O", "raw", "-n", "--target-is-zero",
                            path_of(source.fd.get()), path_of(disk.fd())},
                   .files = {source.fd.get(), disk.fd()},
                   .max_file_bytes = header.disk_bytes,
                   .time = request.limits.program_time,
                   .on_tick = tell}));
  return std::move(disk).release();
}

Result<UniqueFd> tree_disk(const ImportRequest& request, const Source& source, const OnProgress& progress) {
  if (request.disk_bytes > request.limits.max_disk_bytes)
    return too_large("the file system asked for", request.disk_bytes, request.limits);
  FileTree tree(request.limits);
  TRY_ASSIGN(OutputFile contents, OutputFile::temporary(request.work_directory));
  Spool spool(std::move(contents), request.limits);
  const uint64_t total = S_ISREG(source.st.st_mode) ? source.bytes() : 0;
  const auto tell = [&](uint64_t read) {
    if (progress) progress({total ? std::min(read, total) : read, total, "unpack"});
  };
  if (request.format == ImageFormat::kDirectory)
    TRY(read_directory(request.path, tree, spool));
  else if (request.format == ImageFormat::kTar)
    TRY(read_tar({source.fd.get(), 0, source.bytes()}, Whiteouts::kOrdinary, tree, spool, tell));
  else
    TRY(read_oci({request.path, request.tag, request.work_directory, request.limits}, tree, spool, tell));
  TRY(request.limits.admit(spool.bytes()));
  TRY_ASSIGN(OutputFile disk, OutputFile::temporary(request.work_directory));
  TRY(write_ext4(tree, spool, disk.fd(), {request.disk_bytes, request.name, request.limits.program_time}));
  return std::move(disk).release();
}

Result<UniqueFd> disk_of(const ImportRequest& request, Source source, const OnProgress& progress) {
  switch (request.format) {
    case ImageFormat::kRaw: return raw_disk(request, std::move(source));
    case ImageFormat::kQcow2: return qcow2_disk(request, source, progress);
    default: return tree_disk(request, source, progress);
  }
}

}  // namespace

Result<DiskForm> disk_form_of(const ImportRequest& request, const OnProgress& progress) {
  const bool file = request.format != ImageFormat::kDirectory && request.format != ImageFormat::kOci;
  TRY_ASSIGN(Source source, file ? open_regular(request.path) : open_source(request.path));
  const Digest digest = digest_of(request, source);
  TRY_ASSIGN(UniqueFd disk, naming(request.work_directory, disk_of(request, std::move(source), progress)));
  return DiskForm{std::move(disk), digest};
}

}  // namespace ramet::commit
