// tests/vm/harness/processes.h - what /proc says about a process: its descriptors, its children, its memory.
// Not here: VMs. Thread: stateless. A process that is gone has no descriptors and no children.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace ramet::vmtest {

struct Descriptor {
  int fd = -1;
  std::string target;  // link of /proc/PID/fd
  uint64_t device = 0, inode = 0;
  bool character_device = false;
  bool anonymous = false;  // anon_inode: all of a kind have one inode
  bool writable = false;
};

std::vector<Descriptor> descriptors_of(pid_t pid);
// Whether two descriptors are one open file description (kcmp).
bool same_open_file(pid_t a, int fd_a, pid_t b, int fd_b);
// Running and dead but not reaped children.
std::vector<pid_t> children_of(pid_t pid);
// Reaps dead children that nobody owns (orphans of a killed VMM come to the subreaper) until none is left or the deadline;
// describes those that still run.   Requires: no ChildProcess is alive in this process.
std::string surviving_children(Deadline deadline);
// A field of /proc/PID/smaps_rollup in bytes ("Pss_Anon", "Anonymous", "Rss"); 0 when not there.
uint64_t smaps_bytes(pid_t pid, const std::string& field);

}  // namespace ramet::vmtest
