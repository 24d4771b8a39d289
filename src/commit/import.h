// commit/import.h - the door through which images come in: any format, under a name in the catalogue.
//
// What is no raw disk becomes one first, in a file without a name; the disk then goes into the store in steps, each committed
// and written down. An import that is cut leaves no image and no files, but what its steps stored; the same import again goes
// on from there. Foreign images are parsed as hostile (docs/threat_model.md). Thread: any; one name is one thread's.
#pragma once

#include "chunk/store.h"
#include "commit/catalogue.h"
#include "commit/image_limits.h"
#include "commit/progress.h"

namespace ramet::commit {

enum class ImageFormat {
  kRaw,
  kQcow2,      // through qemu-img; one file that needs no other
  kTar,        // a root file system, plain or compressed by gzip, bzip2, xz or zstd; becomes ext4
  kDirectory,  // the same
  kOci,        // an image layout, directory or tar; its layers become ext4
};
// By the names raw, qcow2, tar, dir, oci.   Errors: kInvalid.
Result<ImageFormat> image_format(std::string_view name);

struct ImportRequest {
  ImageFormat format = ImageFormat::kRaw;
  std::string path;
  std::string name;
  std::string parent;          // an image that this one is probably a version of; empty: none
  std::string tag;             // of an OCI image; empty: the only one
  uint64_t disk_bytes = 0;     // of the file system that tar, directory and OCI become; 0: fitting
  std::string work_directory;  // for files without a name
  uint64_t step_bytes = 1ull << 30;
  ImageLimits limits = {};
};

// Errors: kInvalid, kUnsupported, kCorrupt (the image is refused, the reason in the message), kExists (the name), kNotFound,
// kPermission, kUnavailable (a program is missing), kTimeout, kNoSpace, kIo.
Result<image::ManifestRoot> import_image(const ImportRequest& request, chunk::Store& store, Catalogue& catalogue,
                                         const OnProgress& progress = {});

}  // namespace ramet::commit
