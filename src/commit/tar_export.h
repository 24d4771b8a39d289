// commit/tar_export.h - the files of an image as a tar. The image is foreign, so its file system is read by a process that can
// be lost, `ramet-files`: started in bounds (commit/program.h), it has the file that the tar goes into and a socket on which it
// asks us for blocks (commit/disk_asks.h), and lets itself do nothing but compute, read and write these two. Inside of
// export.h. Thread: any; it starts one of its own, which answers the asks, and joins it before it returns.
#pragma once

#include "chunk/store.h"
#include "commit/image_limits.h"
#include "commit/progress.h"
#include "commit/tar_use.h"
#include "image/manifest.h"

namespace ramet::commit {

// Errors: kInvalid (no ext4 file system, or it is refused, with the reason), kUnavailable (no ramet-files), kTimeout, kNoSpace,
// kIo, those of the store and of limits.admit; the file then has a part.
Status export_tar(TarUse use, image::Manifest& manifest, const chunk::Store& store, int file, const OnProgress& progress,
                  const ImageLimits& limits);

}  // namespace ramet::commit
