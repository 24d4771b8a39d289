// chunk/testing/temporary_directory.h - a directory that goes away with its owner.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace ramet::chunk::testing {

struct TemporaryDirectory {
  TemporaryDirectory() {
    std::string pattern = std::filesystem::temp_directory_path() / "ramet-chunk-XXXXXX";
    path = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string path;
};

}  // namespace ramet::chunk::testing
