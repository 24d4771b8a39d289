// commit/oci_image.h - an OCI image layout, a directory or a tar of it, becomes a tree of files. Every blob is checked against
// its digest before anything of it is used. Not here: what the image's configuration says (user, command): a disk has no place
// for it. Thread: one at a time per tree.
#pragma once

#include "commit/archive.h"

namespace ramet::commit {

struct OciRequest {
  std::string path;
  std::string tag;             // empty: the only one
  std::string work_directory;  // for the blobs of an archive
  ImageLimits limits;
};

// Errors: those of oci_json.h and read_tar(); kNotFound (a blob), kCorrupt (a blob that is not what its name says).
Status read_oci(const OciRequest& request, FileTree& tree, Spool& spool, const OnBytes& on_bytes = {});

}  // namespace ramet::commit
