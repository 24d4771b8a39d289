// commit/guess_format.h - what the first bytes of an image say about its format. The one place that guesses; whoever knows says
// it instead. Foreign bytes: nothing is followed but headers of tar, within what is given. Not here: checking the image, which
// whatever reads it does. Thread: a pure function.
#pragma once

#include <cstddef>
#include <span>

#include "commit/import.h"

namespace ramet::commit {

inline constexpr size_t kGuessBytes = 64u << 10;  // enough of a file

// A compressed file is taken for a tar; what says nothing at all for a raw disk.
// Errors: kUnsupported (a format that is known but not taken, with what to do).
Result<ImageFormat> guess_format(std::span<const std::byte> head);

}  // namespace ramet::commit
