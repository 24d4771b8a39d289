// cli/unpacked_directory.h - a tar that the server sends becomes a directory, which is there when it is whole, or not at all.
// The tar is foreign: names that would leave the directory - absolute, with `..`, through a symbolic link - end it. Not here:
// where the bytes come from. Source: libarchive. Thread: one; changes the working directory of the process meanwhile.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/result.h"

namespace ramet::cli {

struct Unpacked {
  uint64_t files = 0;     // made: of all kinds, directories too
  uint64_t devices = 0;   // left out, because only root can make them
  uint64_t changed = 0;   // files that are not all that they were: an attribute could not be set
  std::string not_whole;  // one of these, and why
};
// Fills what it can; 0: the end.
using ReadSome = std::function<Result<size_t>(std::span<std::byte> into)>;

// Owners are kept by root alone.   Requires: a UTF-8 locale is installed, as Debian has it.
// Errors: kExists, kInvalid (refused, with the name), kCorrupt (no tar, or a cut one), by errno, those of `read`.
Result<Unpacked> unpack_tar(const ReadSome& read, const std::string& directory);

}  // namespace ramet::cli
