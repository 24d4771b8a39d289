#include "served_disk.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/file.h"
#include "daemon_source.h"
#include "image/raw_source.h"
#include "overlay_directory.h"

namespace ramet::nbd {
namespace {

struct Base {
  std::unique_ptr<image::BlockSource> source;
  std::string identity;  // what an overlay over it remembers
};

// A file that was changed under an overlay is another base, and the time of its last change tells.
Result<Base> open_raw_file(const std::string& path) {
  TRY_ASSIGN(UniqueFd fd, open_file(path, O_RDONLY));
  struct stat st;
  if (::fstat(fd.get(), &st) < 0) return fail_errno("stat " + path);
  if (!S_ISREG(st.st_mode)) return fail(ErrorKind::kInvalid, path + " is not a regular file");
  const uint64_t bytes = static_cast<uint64_t>(st.st_size);
  const uint64_t blocks = bytes / image::kBlockBytes + (bytes % image::kBlockBytes != 0 ? 1 : 0);
  const std::string identity = "file of " + std::to_string(bytes) + " bytes, changed at " + std::to_string(st.st_mtim.tv_sec) +
                               "." + std::to_string(st.st_mtim.tv_nsec);
  return Base{std::make_unique<image::RawSource>(std::make_unique<image::PosixFile>(std::move(fd)), blocks), identity};
}

Result<Base> open_base(const Parameters& parameters) {
  if (!parameters.file.empty()) return open_raw_file(parameters.file);
  TRY_ASSIGN(std::unique_ptr<DaemonSource> source,
             DaemonSource::open({parameters.socket, parameters.image, parameters.daemon_timeout}));
  // Not its name: a name may come to mean another image.
  const std::string identity = "image of " + std::to_string(source->size_blocks()) + " blocks, content number " +
                               std::to_string(source->content_number());
  return Base{std::move(source), identity};
}

}  // namespace

Result<ServedDisk> ServedDisk::open(const Parameters& parameters) {
  TRY_ASSIGN(Base base, open_base(parameters));
  const uint64_t blocks = base.source->size_blocks();
  ServedDisk disk;
  std::optional<image::OverlayFiles> writable;
  if (!parameters.overlay.empty()) {
    TRY_ASSIGN(OverlayDirectory directory, OverlayDirectory::open(parameters.overlay, base.identity));
    disk.overlay_lock = std::move(directory.lock);
    writable = std::move(directory.files);
  }
  // The overlay is never frozen, so no record of it is tentative and the host's history does not matter.
  TRY_ASSIGN(std::unique_ptr<image::OverlayStack> stack,
             image::OverlayStack::open(std::move(base.source), blocks, {}, std::move(writable), image::HostHistory::kCrashed));
  disk.bytes = std::make_unique<ByteDisk>(std::move(stack));
  return disk;
}

}  // namespace ramet::nbd
