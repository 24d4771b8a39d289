#include "overlay_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"

namespace ramet::nbd {
namespace {

constexpr size_t kMaxBaseBytes = 4096;

Result<UniqueFd> lock_directory(const std::string& path) {
  TRY_ASSIGN(UniqueFd lock, open_file(path + "/lock", O_RDWR | O_CREAT, 0600));
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) < 0) {
    if (errno == EWOULDBLOCK) return fail(ErrorKind::kConflict, "another server uses the overlay in " + path);
    if (errno != EINTR) return fail_errno("lock " + path);
  }
  return lock;
}

// The first server writes down over what it lies, later ones compare.
Status claim_base(const std::string& path, const std::string& base) {
  const std::string file = path + "/base", line = base + "\n";
  const Result<std::string> there = read_file(file, kMaxBaseBytes);
  if (there) {
    if (*there == line) return {};
    return fail(ErrorKind::kConflict,
                "the overlay in " + path + " lies over '" + there->substr(0, there->find('\n')) + "', not over '" + base + "'");
  }
  if (there.error().kind() != ErrorKind::kNotFound) return tl::unexpected(there.error());
  if (::access((path + "/overlay.log").c_str(), F_OK) == 0)
    return fail(ErrorKind::kCorrupt, path + " has an overlay but no file `base` that says over what it lies");
  return replace_file(file, line, 0600);
}

struct ReaderAndWriter {
  UniqueFd reader, writer;
};
Result<ReaderAndWriter> open_both(const std::string& path) {
  ReaderAndWriter both;
  TRY_ASSIGN(both.writer, open_file(path, O_RDWR | O_CREAT, 0600));
  TRY_ASSIGN(both.reader, open_file(path, O_RDONLY));
  return both;
}

}  // namespace

Result<OverlayDirectory> OverlayDirectory::open(const std::string& path, const std::string& base) {
  TRY(make_lasting_directories(path, 0700));
  OverlayDirectory directory;
  TRY_ASSIGN(directory.lock, lock_directory(path));
  TRY(claim_base(path, base));
  TRY_ASSIGN(ReaderAndWriter data, open_both(path + "/overlay.data"));
  TRY_ASSIGN(ReaderAndWriter log, open_both(path + "/overlay.log"));
  TRY(sync_directory(path));
  directory.files = image::overlay_from_descriptors("nbd", std::move(data.writer), std::move(data.reader),
                                                    std::move(log.writer), std::move(log.reader));
  return directory;
}

}  // namespace ramet::nbd
