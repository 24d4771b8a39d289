#include "cli/copy_paths.h"

namespace ramet::cli {

CopyPlace parse_copy_place(const std::string& word) {
  const size_t colon = word.find(':');
  if (colon == std::string::npos || colon == 0 || word.find('/') < colon || word.starts_with('.')) return {"", word};
  const std::string path = word.substr(colon + 1);
  return {word.substr(0, colon), path.starts_with('/') ? path : "/home/user/" + path};
}

std::string copy_target(const std::string& from, const std::string& to, bool to_is_directory) {
  if (!to_is_directory && !to.ends_with('/')) return to;
  std::string name = from;
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  name = name.substr(name.rfind('/') + 1);  // npos + 1 = 0
  if (name.empty() || name == "." || name == "..") return to;
  return to.ends_with('/') ? to + name : to + "/" + name;
}

}  // namespace ramet::cli
