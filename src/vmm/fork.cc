#include "vmm/fork.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "base/child_process.h"

namespace ramet::vmm {

void ignore_child_exits() { ::signal(SIGCHLD, SIG_IGN); }

Result<Branch> branch() {
  // While its exits are ignored, a child that ends at once frees its pid at once. As a zombie it keeps it until the pidfd is open.
  ::signal(SIGCHLD, SIG_DFL);
  const pid_t pid = ::fork();
  const int fork_errno = errno;
  if (pid == 0) {
    ignore_child_exits();
    return Branch{};
  }
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

Status keep_only(std::vector<int> keep) {
  std::sort(keep.begin(), keep.end());
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

}  // namespace ramet::vmm
