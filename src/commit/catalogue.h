// commit/catalogue.h - images by name: one small file each, the root of its manifest.
// Beside them the imports that were cut, or are under way: what those have stored is needed, too.
// Not here: who may see which image, what is running from one. Thread: any; files change as a whole.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "commit/unfinished_format.h"
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
  // An image, and an unfinished import of that name. Its chunks stay in the store until they are collected.
  // Errors: kInvalid (name), kNotFound, kIo.
  Status remove(std::string_view name);
  // Sorted.   Errors: kIo.
  Result<std::vector<std::string>> names() const { return names_with(kImage); }

  // Durable when it returns; in the place of what was noted before.   Errors: kInvalid (name), kNoSpace, kIo.
  Status note_unfinished(std::string_view name, const Unfinished& import);
  // Errors: kInvalid (name), kNotFound, kCorrupt, kUnsupported, kIo.
  Result<Unfinished> unfinished(std::string_view name) const;
  // Nothing, if there is none.   Errors: kInvalid (name), kIo.
  Status forget_unfinished(std::string_view name);
  Result<std::vector<std::string>> unfinished_names() const { return names_with(kUnfinished); }

 private:
  // What a crash in replace_file() leaves behind ends otherwise.
  static constexpr std::string_view kImage = ".manifest", kUnfinished = ".unfinished";
  explicit Catalogue(std::string directory) : directory_(std::move(directory)) {}
  std::string path_of(std::string_view name, std::string_view suffix) const;
  Result<std::string> read(std::string_view name, std::string_view suffix) const;
  Result<std::vector<std::string>> names_with(std::string_view suffix) const;
  std::string directory_;
};

}  // namespace ramet::commit
