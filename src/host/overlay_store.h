// host/overlay_store.h - the overlay files of all machines: made, opened for a monitor, sealed, deleted.
// An overlay is two files (image/overlay): ID.data, sparse, and ID.log, the map log. Which machine uses which one is the
// registry's business; what lies in them is the monitor's.
// Sealing: every process that inherited a writable descriptor could still write to a frozen overlay, so its files are made
// durable and then immutable (FS_IMMUTABLE_FL) where the file system can. Slow (it writes back), so never on the fork's path.
// Thread: any; stateless but for the directory.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "host/paths.h"

namespace ramet::host {

struct OverlayFiles {
  std::string id;
  UniqueFd data_rw, data_ro, log_rw, log_ro;
};
struct OverlayReadFiles {
  std::string id;
  UniqueFd data_ro, log_ro;
};

class OverlayStore {
 public:
  explicit OverlayStore(const Paths& paths) : paths_(paths) {}

  // Requires: journalled.   Errors: kExists, kNoSpace, kPermission.
  Result<OverlayFiles> create(const std::string& id) const;
  Result<OverlayReadFiles> open_read(const std::string& id) const;
  // Durable and, where possible, immutable. True: immutable.
  Result<bool> seal(const std::string& id) const;
  // Missing files are not an error.
  Status remove(const std::string& id) const;
  uint64_t allocated_bytes(const std::string& id) const;
  // Ids of all overlays that have a file.
  Result<std::vector<std::string>> present() const;
  // Whether this file system can make files immutable, found by trying.
  bool can_seal() const;

 private:
  const Paths& paths_;
};

}  // namespace ramet::host
