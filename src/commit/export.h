// commit/export.h - the door through which images go out, as a file that is there when it is whole, or not at all.
// A tar has the files of an image that is an ext4 file system, an OCI image (a tar of its layout) has them as its layer; a
// directory is unpacked from these by whoever asked for it.
// Thread: any; one call is one thread's.
#pragma once

#include "base/unique_fd.h"
#include "commit/image_limits.h"
#include "commit/raw_image.h"

namespace ramet::commit {

enum class ExportFormat { kRaw, kQcow2, kTar, kOci };
// Errors: kInvalid.
Result<ExportFormat> export_format(std::string_view name);

struct ExportRequest {
  ExportFormat format = ExportFormat::kRaw;
  std::string name = {};  // of the image: an OCI image has it as its tag
  OnProgress progress = {};
  ImageLimits limits = {};
};
// `path` must not exist; beside it is room for work, for qcow2 that of the raw disk, for OCI that of the files.
// Errors: kExists, kCorrupt, kNotFound (a chunk), kInvalid (no files for a tar, or refused), kUnavailable (a program is
// missing), kTimeout, kNoSpace, kIo.
Status export_image(const ExportRequest& request, image::Manifest& manifest, const chunk::Store& store,
                    const std::string& path);
// The same as a file without a name in this directory.   Errors: also those of limits.admit.
Result<UniqueFd> export_unnamed(const ExportRequest& request, image::Manifest& manifest, const chunk::Store& store,
                                const std::string& directory);

}  // namespace ramet::commit
