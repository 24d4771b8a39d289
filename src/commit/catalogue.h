// commit/catalogue.h - images by name: one small file each, the root of its manifest.
// Not here: who may see which image, what is running from one. Thread: any; files change as a whole.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "image/manifest_format.h"

namespace ramet::commit {

// 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit.   Errors: kInvalid.
Status check_image_name(std::string_view name);

class Catalogue {
 public:
  // Makes the directory if need be.   Errors: by errno.
  static Result<Catalogue> open(const std::string& directory);

  // Durable when it returns.   Errors: kInvalid (name), kExists, kNoSpace, kIo.
  Status add(std::string_view name, const image::ManifestRoot& root);
  // Errors: kInvalid (name), kNotFound, kCorrupt, kUnsupported, kIo.
  Result<image::ManifestRoot> get(std::string_view name) const;
  // Its chunks stay in the store until they are collected.   Errors: kInvalid (name), kNotFound, kIo.
  Status remove(std::string_view name);
  // Sorted.   Errors: kIo.
  Result<std::vector<std::string>> names() const;

 private:
  explicit Catalogue(std::string directory) : directory_(std::move(directory)) {}
  std::string path_of(std::string_view name) const;
  std::string directory_;
};

}  // namespace ramet::commit
