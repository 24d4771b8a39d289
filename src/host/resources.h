// host/resources.h - what one machine owns outside its process: directory, console file, listening socket, overlay files,
// cgroup leaf. All are named after ids that the registry already holds, so each can be made and taken away by name alone, twice
// as well. Not here: the process (machine.h), who still uses an overlay (registry.h). Thread: any.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "host/cgroup.h"
#include "host/overlay_store.h"
#include "host/paths.h"

namespace ramet::host {

struct MachineFiles {
  UniqueFd console, listen;
  std::optional<OverlayFiles> overlay;  // its writable one
};

struct Resources {
  const Paths& paths;
  OverlayStore& overlays;
  CgroupTree& cgroups;

  // Requires: the machine is journalled.
  Result<MachineFiles> prepare(const std::string& id, const std::string& family, uint64_t family_memory_max,
                               const std::string& overlay_id) const;
  // Requires: its process has ended.
  void release(const std::string& id, const std::string& family, bool keep_console) const;
  // Console text, newest `limit` bytes, oldest first.
  Result<std::string> console_text(const std::string& id, uint64_t limit) const;
};

}  // namespace ramet::host
