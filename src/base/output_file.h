// base/output_file.h - files that are not there until they are whole, or never. A process that is killed leaves nothing
// (where the file system knows nameless files; else a hidden file beside the one to be made). Thread: one owner.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet {

class OutputFile {
 public:
  // For work: never gets a name.   Errors: by errno.
  static Result<OutputFile> temporary(const std::string& directory);
  // Gets this name by publish().   Errors: kExists, by errno.
  static Result<OutputFile> at(const std::string& path, mode_t mode = 0600);
  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  int fd() const { return fd_.get(); }
  // Of a temporary one.
  UniqueFd release() && { return std::move(fd_); }
  // Durable and named.   Errors: kExists (somebody was faster), kNoSpace, kIo.
  Status publish();

 private:
  OutputFile(UniqueFd fd, std::string path, std::string hidden)
      : fd_(std::move(fd)), path_(std::move(path)), hidden_(std::move(hidden)) {}
  UniqueFd fd_;
  std::string path_;    // that it will have
  std::string hidden_;  // that it has meanwhile, if any
};

}  // namespace ramet
