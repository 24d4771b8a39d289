#include "image/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "image/iovecs.h"

namespace ramet::image {

Result<bool> read_at(int fd, uint64_t offset, std::span<const iovec> to, Wait wait) {
  const int flags = wait == Wait::kNever ? RWF_NOWAIT : 0;
  uint64_t left = total_bytes(to);
  IovecCursor cursor(to);
  while (left > 0) {
    const std::span<const iovec> pieces = cursor.peek(left);
    const off_t at = static_cast<off_t>(offset);
    // The plain call where it will do: it is a tenth of a microsecond cheaper.
    const ssize_t n = pieces.size() == 1 && !flags ? ::pread(fd, pieces[0].iov_base, pieces[0].iov_len, at)
                                                   : ::preadv2(fd, pieces.data(), static_cast<int>(pieces.size()), at, flags);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (flags && (errno == EAGAIN || errno == EOPNOTSUPP)) return false;
      return fail_errno("read from image file");
    }
    if (n == 0) {  // past the end
      cursor.zero(left);
      return true;
    }
    cursor.advance(static_cast<uint64_t>(n));
    offset += static_cast<uint64_t>(n);
    left -= static_cast<uint64_t>(n);
  }
  return true;
}

Status PosixFile::write(uint64_t offset, std::span<const iovec> from) {
  uint64_t left = total_bytes(from);
  IovecCursor cursor(from);
  while (left > 0) {
    const std::span<const iovec> pieces = cursor.peek(left);
    const ssize_t n = ::pwritev(writer_.get(), pieces.data(), static_cast<int>(pieces.size()), static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail_errno("write to image file");
    }
    if (n == 0) return fail(ErrorKind::kNoSpace, "the file system takes no more bytes of an image file");
    cursor.advance(static_cast<uint64_t>(n));
    offset += static_cast<uint64_t>(n);
    left -= static_cast<uint64_t>(n);
  }
  return {};
}

Status PosixFile::sync() const {
  while (::fdatasync(reader_.get()) < 0)
    if (errno != EINTR) return fail_errno("sync image file");
  return {};
}

Status PosixFile::punch(uint64_t offset, uint64_t length) {
  while (::fallocate(writer_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                     static_cast<off_t>(length)) < 0)
    if (errno != EINTR) return fail_errno("punch image file");
  return {};
}

void PosixFile::start_writeback() const { (void)::sync_file_range(reader_.get(), 0, 0, SYNC_FILE_RANGE_WRITE); }

Result<uint64_t> PosixFile::size() const {
  struct stat s;
  if (::fstat(reader_.get(), &s) < 0) return fail_errno("stat image file");
  return static_cast<uint64_t>(s.st_size);
}

File::Stretch PosixFile::stretch_at(uint64_t offset, uint64_t length) const {
  const off_t data = ::lseek(reader_.get(), static_cast<off_t>(offset), SEEK_DATA);
  if (data < 0) return {length, errno == ENXIO};  // ENXIO: no data up to the end, or past it
  if (static_cast<uint64_t>(data) > offset) return {std::min(length, static_cast<uint64_t>(data) - offset), true};
  const off_t hole = ::lseek(reader_.get(), data, SEEK_HOLE);
  if (hole <= data) return {length, false};
  return {std::min(length, static_cast<uint64_t>(hole) - offset), false};
}

Status PosixFile::resize(uint64_t bytes) {
  while (::ftruncate(writer_.get(), static_cast<off_t>(bytes)) < 0)
    if (errno != EINTR) return fail_errno("resize image file");
  return {};
}

void PosixFile::append_descriptors(std::vector<int>& out) const {
  if (reader_) out.push_back(reader_.get());
  if (writer_) out.push_back(writer_.get());
}

Status read_all(const File& file, uint64_t offset, std::span<std::byte> out) {
  const iovec v{out.data(), out.size()};
  TRY(file.read(offset, {&v, 1}, Wait::kAllowed));
  return {};
}

Status write_all(File& file, uint64_t offset, std::span<const std::byte> data) {
  const iovec v{const_cast<std::byte*>(data.data()), data.size()};
  return file.write(offset, {&v, 1});
}

}  // namespace ramet::image
