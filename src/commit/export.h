// commit/export.h - the door through which images go out, as a file that is there when it is whole, or not at all.
// A tar has the files of an image that is an ext4 file system; a directory is unpacked from that by whoever asked for it.
// Thread: any; one call is one thread's.
#pragma once

#include "base/unique_fd.h"
#include "commit/image_limits.h"
#include "commit/raw_image.h"

namespace ramet::commit {

enum class ExportFormat { kRaw, kQcow2, kTar };
// Errors: kInvalid.
Result<ExportFormat> export_format(std::string_view name);

// `path` must not exist; beside it is room for work, for qcow2 that of the raw disk.   Errors: kExists, kCorrupt, kNotFound (a
// chunk), kInvalid (no files for a tar, or refused), kUnavailable (a program is missing), kTimeout, kNoSpace, kIo.
Status export_image(ExportFormat format, image::Manifest& manifest, const chunk::Store& store, const std::string& path,
                    const OnProgress& progress = {}, const ImageLimits& limits = {});
// The same as a file without a name in this directory.   Errors: also those of limits.admit.
Result<UniqueFd> export_unnamed(ExportFormat format, image::Manifest& manifest, const chunk::Store& store,
                                const std::string& directory, const OnProgress& progress = {}, const ImageLimits& limits = {});

}  // namespace ramet::commit
