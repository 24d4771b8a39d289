// commit/export.h - the door through which images go out, as a file that is there when it is whole, or not at all.
// Not offered: tar and directory (mount the raw file read-only for that). Thread: any; one call is one thread's.
#pragma once

#include "base/unique_fd.h"
#include "commit/image_limits.h"
#include "commit/raw_image.h"

namespace ramet::commit {

enum class ExportFormat { kRaw, kQcow2 };
// Errors: kInvalid.
Result<ExportFormat> export_format(std::string_view name);

// `path` must not exist; beside it is room for work, for qcow2 that of the raw disk.   Errors: kExists, kCorrupt, kNotFound (a
// chunk), kUnavailable (no qemu-img), kTimeout, kNoSpace, kIo.
Status export_image(ExportFormat format, image::Manifest& manifest, const chunk::Store& store, const std::string& path,
                    const OnProgress& progress = {}, const ImageLimits& limits = {});
// The same as a file without a name in this directory.   Errors: also those of limits.admit.
Result<UniqueFd> export_unnamed(ExportFormat format, image::Manifest& manifest, const chunk::Store& store,
                                const std::string& directory, const OnProgress& progress = {}, const ImageLimits& limits = {});

}  // namespace ramet::commit
