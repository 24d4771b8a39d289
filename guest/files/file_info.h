// guest/files/file_info.h - struct stat as the host wants to see it. Thread: the worker's only one.
#pragma once

#include <sys/stat.h>

#include <map>
#include <string>

#include "abi/agent.pb.h"

namespace ramet::guest {

// Names of the owners seen so far: the databases are read once per number, not once per file.
class NameCache {
 public:
  const std::string& user(uid_t uid);
  const std::string& group(gid_t gid);

 private:
  std::map<uid_t, std::string> users_;
  std::map<gid_t, std::string> groups_;
};

// `dir` and `name` find the file again, to read where a symbolic link points; `shown` is the path in the answer.
abi::FileInfo file_info(const std::string& shown, int dir, const char* name, const struct stat& st, NameCache& names);

}  // namespace ramet::guest
