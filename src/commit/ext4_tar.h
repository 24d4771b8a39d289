// commit/ext4_tar.h - the files of a disk with an ext4 file system as a tar: all kinds but sockets, with holes, hard links,
// owners, times, attributes; lost+found is left out. The disk is foreign: run this in a process that can be lost, which
// commit/tar_export.h does. Memory: bounded by the limits' metadata. Thread: any; one call is one thread's.
#pragma once

#include "commit/image_limits.h"
#include "commit/tar_use.h"
#include "commit/tar_writer.h"
#include "image/source.h"

namespace ramet::commit {

// Of the limits: max_files, max_metadata_bytes. No more data comes out than the disk is large.
// Errors: kInvalid (no ext4 file system, or one that is damaged or hostile, with path and reason; a name that a layer cannot
// have), kNoMemory, those of the source and the sink; the sink then has a part.
Status write_tar(const image::BlockSource& source, TarUse use, const ImageLimits& limits, const TarWriter::Sink& sink);

}  // namespace ramet::commit
