// vmm/fork.h - fork(2) of a monitor process, the mechanism: branching with a pidfd, and closing everything a child must not
// have. What is saved before and rebuilt after is the monitor's business (monitor.h).
//
// Descriptors have one of three fates in a child. *Keep*: what all branches may share because nobody can change it (images,
// frozen overlays, /dev/kvm, the log on standard error). *Replace*: what the child gets anew over its bootstrap socket (control
// socket, console, overlay) or makes anew (event loop, VM). *Close*: everything else. The owners of the last two let go first,
// each by its after_fork(); then keep_only() closes whatever is not on the list, so that a forgotten one cannot leak. A
// forgotten one is a bug all the same (its owner would later close a number that belongs to somebody else by then): debug and
// sanitizer builds end on it. Thread: single-threaded callers only; in the parent, with vCPUs standing and workers idle.
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet::vmm {

// Children end without a trace in this process: they are the daemon's, which knows them by pidfd.
void ignore_child_exits();

struct Branch {
  pid_t pid = 0;   // 0: this is the child
  UniqueFd pidfd;  // of the child; invalid in the child
  bool is_child() const { return pid == 0; }
};
// Errors: kNoSpace, kNoMemory; kUnavailable (the child was gone before it had a pidfd).
// `parent_first` runs in the parent before anything else, also when fork(2) failed.
Result<Branch> branch(const std::function<void()>& parent_first);

// Closes every descriptor that is not in the list.   Errors: by errno.
Status close_all_but(std::vector<int> keep);
// The same for a child whose owners let go already; checks that they did (see above).
Status keep_only(std::vector<int> keep);

}  // namespace ramet::vmm
