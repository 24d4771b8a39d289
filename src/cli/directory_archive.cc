#include "cli/directory_archive.h"

#include <unistd.h>

#include <cerrno>

#include "base/file.h"
#include "cli/places.h"

namespace ramet::cli {

Result<DirectoryArchive> DirectoryArchive::start(const std::string& directory) {
  const std::optional<std::string> program = find_program("tar");
  if (!program) return fail(ErrorKind::kUnsupported, "sending a directory needs `tar` on this computer");
  TRY_ASSIGN(Pipe pipe, make_pipe());
  SpawnOptions spawn;
  spawn.argv = {*program, "-b", "128", "--format=posix", "--numeric-owner", "--xattrs", "--one-file-system", "-C", directory,
                "-cf",    "-",  "."};
  spawn.stdout_fd = pipe.write_end.get();
  spawn.new_session = false;
  TRY_ASSIGN(ChildProcess tar, ChildProcess::spawn(spawn));
  return DirectoryArchive(std::move(tar), std::move(pipe.read_end));
}

Result<size_t> DirectoryArchive::read(std::span<std::byte> into) {
  size_t have = 0;
  while (have < into.size()) {
    const ssize_t n = ::read(bytes_.get(), into.data() + have, into.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read what tar writes");
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  return have;
}

Status DirectoryArchive::finish() {
  const std::optional<int> status = tar_.wait(Deadline::max());
  if (status && *status == 0) return {};
  return fail(ErrorKind::kIo, "`tar` could not read all of the directory");
}

}  // namespace ramet::cli
