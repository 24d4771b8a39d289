#include "vmm/fork.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/child_process.h"
#include "base/log.h"

namespace ramet::vmm {

namespace {

#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
void check_nothing_is_left(const std::vector<int>& keep) {
  std::string left;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    std::error_code gone;  // the directory's own descriptor
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (gone || target.starts_with("/proc/") || std::binary_search(keep.begin(), keep.end(), fd)) continue;
    left += " " + std::to_string(fd) + " (" + target + ")";
  }
  if (left.empty()) return;
  log_error("a forked child would have inherited descriptors:" + left);
  std::abort();
}
#else
void check_nothing_is_left(const std::vector<int>&) {}
#endif

}  // namespace

void ignore_child_exits() { ::signal(SIGCHLD, SIG_IGN); }

Result<Branch> branch(const std::function<void()>& parent_first) {
  // While its exits are ignored, a child that ends at once frees its pid at once. As a zombie it keeps it until the pidfd is
  // open.
  ::signal(SIGCHLD, SIG_DFL);
  const pid_t pid = ::fork();
  const int fork_errno = errno;
  if (pid == 0) {
    ignore_child_exits();
    return Branch{};
  }
  parent_first();
  if (pid < 0) {
    ignore_child_exits();
    return fail_errno("fork", fork_errno);
  }
  Result<UniqueFd> pidfd = open_pidfd(pid);
  ignore_child_exits();
  ::waitpid(pid, nullptr, WNOHANG);  // it may be a zombie already, which nobody reaps now
  if (!pidfd) {
    ::kill(pid, SIGKILL);
    return tl::unexpected<Error>(std::move(pidfd).error());
  }
  return Branch{pid, *std::move(pidfd)};
}

namespace {

Status close_gaps(const std::vector<int>& keep) {
  unsigned first = 0;
  const auto close_gap = [](unsigned from, unsigned to) -> Status {
    if (from > to) return {};
    if (::syscall(SYS_close_range, from, to, 0) < 0) return fail_errno("close inherited descriptors");
    return {};
  };
  for (const int fd : keep) {
    if (fd < 0 || static_cast<unsigned>(fd) < first) continue;  // absent, or twice
    if (fd > 0) TRY(close_gap(first, static_cast<unsigned>(fd) - 1));
    first = static_cast<unsigned>(fd) + 1;
  }
  return close_gap(first, UINT_MAX);
}

}  // namespace

Status close_all_but(std::vector<int> keep) {
  std::sort(keep.begin(), keep.end());
  return close_gaps(keep);
}

Status keep_only(std::vector<int> keep) {
  std::sort(keep.begin(), keep.end());
  check_nothing_is_left(keep);
  return close_gaps(keep);
}

}  // namespace ramet::vmm
