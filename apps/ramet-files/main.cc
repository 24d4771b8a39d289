// ramet-files SOCKET BLOCKS FILE USE - writes the files of a disk of so many blocks, which it asks for on the descriptor
// SOCKET, as a tar into the descriptor FILE; USE: files, or layer (commit/tar_use.h). Started by commit/tar_export.h alone. The
// disk is foreign and may do to us what it wants: from where the first byte of it is read, this process can compute, read and
// write what is open, and end, nothing else.
#include <seccomp.h>
#include <signal.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <memory>
#include <new>
#include <string_view>

#include "base/file.h"
#include "base/utf8_names.h"
#include "commit/disk_asks.h"
#include "commit/ext4_tar.h"

using namespace ramet;

namespace {

template <class T>
bool read_number(std::string_view text, T& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc() && end == text.data() + text.size();
}

bool read_use(std::string_view text, commit::TarUse& into) {
  for (const commit::TarUse use : {commit::TarUse::kFiles, commit::TarUse::kLayer}) {
    if (text != commit::name_of(use)) continue;
    into = use;
    return true;
  }
  return false;
}

struct FreeFilter {
  void operator()(void* filter) const { seccomp_release(filter); }
};

// What is missing here is an error to who calls it: libraries that would look for a file of theirs go on without.
bool give_up_everything_else() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;  // sanitizers look around at the end
#else
  constexpr std::array kNeeded = {SCMP_SYS(read),   SCMP_SYS(write),      SCMP_SYS(mmap),         SCMP_SYS(munmap),
                                  SCMP_SYS(mremap), SCMP_SYS(brk),        SCMP_SYS(madvise),      SCMP_SYS(clock_gettime),
                                  SCMP_SYS(exit),   SCMP_SYS(exit_group), SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigprocmask),
                                  SCMP_SYS(gettid), SCMP_SYS(getpid)};
  const std::unique_ptr<void, FreeFilter> filter(seccomp_init(SCMP_ACT_ERRNO(EPERM)));
  if (!filter) return false;
  for (const int call : kNeeded)
    if (seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, call, 0) < 0) return false;
  return seccomp_load(filter.get()) == 0;
#endif
}

Status write_files(int socket, uint64_t blocks, int file, commit::TarUse use) {
  const commit::AskedSource disk(socket, blocks);
  try {
    return commit::write_tar(disk, use, {}, [file](std::span<const std::byte> bytes) { return write_all(file, bytes); });
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::kInvalid, "the file system needs more memory to be read than is allowed");
  }
}

}  // namespace

int main(int argc, char** argv) {
  int socket = -1, file = -1;
  uint64_t blocks = 0;
  commit::TarUse use{};
  if (argc != 5 || !read_number(argv[1], socket) || !read_number(argv[2], blocks) || !read_number(argv[3], file) ||
      !read_use(argv[4], use)) {
    std::fprintf(stderr, "ramet-files is started by the exports of images\n");
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  const Utf8Names names;  // loads the locale while it can
  if (!give_up_everything_else()) {
    std::fprintf(stderr, "a filter of system calls could not be set\n");
    return 1;
  }
  const Status done = write_files(socket, blocks, file, use);
  if (done) return 0;
  if (done.error().kind() == ErrorKind::kInvalid) commit::say_refusal(socket, done.error());
  std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return 1;
}
