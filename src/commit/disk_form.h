// commit/disk_form.h - an image of any format in the form of a raw disk file. Inside of import.h.
// Thread: any; one call is one thread's.
#pragma once

#include "base/unique_fd.h"
#include "commit/import.h"

namespace ramet::commit {

struct DiskForm {
  UniqueFd file;
  Digest source;  // of what says which bytes these are: same digest, same disk
};

// Errors: those of import_image().
Result<DiskForm> disk_form_of(const ImportRequest& request, const OnProgress& progress);

}  // namespace ramet::commit
