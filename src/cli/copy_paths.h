// cli/copy_paths.h - the two sides of `ramet cp` as words. Not here: copying. Thread: pure functions.
#pragma once

#include <string>

namespace ramet::cli {

struct CopyPlace {
  std::string sandbox;  // empty: on this computer
  std::string path;
};
// "ID:/abs" is in a sandbox; a relative path after the colon starts at /home/user.
CopyPlace parse_copy_place(const std::string& word);

// Where `from` goes: into `to` under its own name when `to` is a directory or ends with `/`, else to `to` itself.
std::string copy_target(const std::string& from, const std::string& to, bool to_is_directory);

}  // namespace ramet::cli
