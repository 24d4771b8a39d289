// host/cgroup.h - control groups v2 of all machines: ramet.slice/DAEMON/FAMILY/MACHINE, outside the daemon's own unit. DAEMON
// is the state directory's, so that two daemons of one host never tidy up each other's. The hard memory limit stands on the
// family, because pages inherited by a fork stay charged to the ancestor; leaves carry CPU and process limits. Without v2
// controllers everything goes on, only unlimited: every call succeeds and report() says so. Thread: any; the kernel serialises.
// Not here: who belongs where (sandboxes) and admission (admission.h).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "host/types.h"

namespace ramet::host {

struct FamilyLimits {
  uint64_t memory_max_bytes = 0;  // 0: none
};
struct LeafLimits {
  uint32_t cpu_weight = 100;
  uint32_t pids_max = 4096;  // threads; forked children start in the leaf of their parent
};

class CgroupTree {
 public:
  // Looks for v2 at `root`, then `root`/unified; makes the tree of this state directory and turns controllers on. Never fails:
  // see report().
  CgroupTree(const std::string& root, const std::string& state_dir);
  // An empty tree goes; one with machines stays.
  ~CgroupTree();
  CgroupTree(const CgroupTree&) = delete;
  CgroupTree& operator=(const CgroupTree&) = delete;

  bool usable() const { return !tree_.empty(); }
  CgroupReport report() const;

  Status make_family(const std::string& family, const FamilyLimits& limits) const;
  Status make_leaf(const std::string& family, const std::string& machine, const LeafLimits& limits) const;
  Status move(const std::string& family, const std::string& machine, pid_t pid) const;
  // True when `pid` is in the family (any leaf); nothing when cgroups are not usable or the process is gone.
  std::optional<bool> contains(const std::string& family, pid_t pid) const;
  // SIGKILL to all members of the leaf.
  Status kill_leaf(const std::string& family, const std::string& machine) const;
  std::vector<pid_t> members(const std::string& family, const std::string& machine) const;
  // Waits a little for the kernel to let go of dead members. The family goes with its last leaf.
  Status remove_leaf(const std::string& family, const std::string& machine) const;
  // All FAMILY/MACHINE that exist.
  std::vector<std::pair<std::string, std::string>> leaves() const;
  std::vector<std::string> families() const;
  Status remove_family(const std::string& family) const;
  // What the kernel could not simply drop: anonymous, kernel and shared memory, not the page cache.
  std::optional<uint64_t> family_memory_used(const std::string& family) const;
  std::optional<uint64_t> family_memory_max(const std::string& family) const;

 private:
  std::string family_dir(const std::string& family) const { return tree_ + "/" + family; }
  std::string leaf_dir(const std::string& family, const std::string& machine) const {
    return family_dir(family) + "/" + machine;
  }
  bool has(std::string_view controller) const;

  std::string tree_;                      // ramet.slice/DAEMON; empty: no v2 here
  std::vector<std::string> controllers_;  // those that leaves really have
};

}  // namespace ramet::host
