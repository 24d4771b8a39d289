// commit/oci_export.h - the files of an image as an OCI image of one layer, in a tar of its layout: the layer is the tar of
// commit/tar_export.h, which lies in a file of its own while its digest is taken. The same image under the same tag gives the
// same bytes. Inside of export.h. Thread: any; one call is one thread's.
#pragma once

#include <string>

#include "chunk/store.h"
#include "commit/image_limits.h"
#include "commit/progress.h"
#include "image/manifest.h"

namespace ramet::commit {

struct OciExport {
  int file = -1;  // to write to
  std::string tag;
  std::string work_directory;  // for the layer
};
// Errors: those of export_tar(), of a layer; kInvalid (a file whose name would take another one away in a layer).
Status export_oci(const OciExport& to, image::Manifest& manifest, const chunk::Store& store, const OnProgress& progress,
                  const ImageLimits& limits);

}  // namespace ramet::commit
