// commit/memory_fill.h - an image's memory into the two files that machines map (image/memory_layout.h).
// Whole data pieces are written, zeros inside of them too: a hole of a shared file costs every later user twice. What is zero
// by the map is left out. Each chunk is checked by its name before it is written. Not here: making, sealing and sharing the
// files. Thread: any; one call is one thread's, and has up to three threads of its own that decode and write, and are joined
// before it returns.
#pragma once

#include "commit/progress.h"
#include "commit/stored_manifest.h"
#include "image/memory_layout.h"

namespace ramet::commit {

// `zeros` is what image::zero_map_of() says of this manifest.
// Errors: kInvalid (no memory, a map that does not fit it, files that are not empty or not of its size), kCorrupt, kNotFound,
// kNoSpace, kIo; the files then hold a part.
Status fill_memory(image::Manifest& manifest, const chunk::Store& store, const image::ZeroMap& zeros, int even, int odd,
                   const OnProgress& progress = {});

}  // namespace ramet::commit
