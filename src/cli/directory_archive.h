// cli/directory_archive.h - a directory as the bytes of a tar, made by `tar` while they are read: no file is left behind.
// Owners by number, extended attributes, links as they are; other file systems below it are left out. Thread: one. Owner: the
// caller; ends its program.
#pragma once

#include <span>
#include <string>

#include "base/child_process.h"
#include "base/result.h"

namespace ramet::cli {

class DirectoryArchive {
 public:
  // Errors: kUnsupported (no tar here), by errno.
  static Result<DirectoryArchive> start(const std::string& directory);
  // Fills what it can; less than asked only at the end.   Errors: kIo.
  Result<size_t> read(std::span<std::byte> into);
  // After the end: whether all of the directory was there.   Errors: kIo.
  Status finish();

 private:
  DirectoryArchive(ChildProcess tar, UniqueFd bytes) : tar_(std::move(tar)), bytes_(std::move(bytes)) {}
  ChildProcess tar_;
  UniqueFd bytes_;
};

}  // namespace ramet::cli
