// cli/work_directory.h - a directory under a name for work beside the one that it will be, which is there when it is whole, or
// not at all. What others left that were killed on the way to the same name goes away first. Not here: what is put into it.
// Thread: one. Owner: the caller; a resource.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet::cli {

class WorkDirectory {
 public:
  // Beside `path`, on the same file system.   Errors: kExists (there is something of this name), by errno.
  static Result<WorkDirectory> beside(const std::string& path);
  WorkDirectory(WorkDirectory&& o) noexcept;
  WorkDirectory& operator=(WorkDirectory&&) = delete;
  // It goes away with all that is in it, whatever the modes of that are.
  ~WorkDirectory();

  const std::string& path() const { return work_; }
  // It gets its name.   Errors: kExists (somebody was faster), by errno.
  Status publish();

 private:
  WorkDirectory(std::string path, std::string work, UniqueFd lock)
      : path_(std::move(path)), work_(std::move(work)), lock_(std::move(lock)) {}
  std::string path_, work_;  // that it will have, and has; empty: it is no longer ours
  UniqueFd lock_;            // held as long as somebody works in it
};

}  // namespace ramet::cli
