#include "commit/catalogue.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/file.h"

namespace ramet::commit {
namespace {

constexpr size_t kMaxName = 64;
// 64 TiB of memory chunks are 524,288 pages of 32 bytes.
constexpr size_t kMaxRootBytes = 32u << 20;

// What a crash in replace_file() leaves behind ends otherwise.
constexpr std::string_view kSuffix = ".manifest";

bool is_plain(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

}  // namespace

Status check_image_name(std::string_view name) {
  const bool good = !name.empty() && name.size() <= kMaxName && is_plain(name[0]) &&
                    std::ranges::all_of(name, [](char c) { return is_plain(c) || c == '.' || c == '_' || c == '-'; });
  if (good) return {};
  return fail(ErrorKind::kInvalid, "image name '" + std::string(name.substr(0, kMaxName)) +
                                       "'; 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit");
}

Result<Catalogue> Catalogue::open(const std::string& directory) {
  TRY(make_directories(directory, 0700));
  return Catalogue(directory);
}

std::string Catalogue::path_of(std::string_view name) const {
  return directory_ + "/" + std::string(name) + std::string(kSuffix);
}

Status Catalogue::add(std::string_view name, const image::ManifestRoot& root) {
  TRY(check_image_name(name));
  if (std::error_code error; std::filesystem::exists(path_of(name), error))
    return fail(ErrorKind::kExists, "there is an image '" + std::string(name) + "' already");
  return replace_file(path_of(name), image::encode_manifest_root(root), 0600);
}

Result<image::ManifestRoot> Catalogue::get(std::string_view name) const {
  TRY(check_image_name(name));
  Result<std::string> bytes = read_file(path_of(name), kMaxRootBytes);
  if (!bytes && bytes.error().kind() == ErrorKind::kNotFound)
    return fail(ErrorKind::kNotFound, "no image '" + std::string(name) + "'");
  if (!bytes) return tl::unexpected<Error>(std::move(bytes).error());
  return image::decode_manifest_root(as_bytes(*bytes));
}

Status Catalogue::remove(std::string_view name) {
  TRY(check_image_name(name));
  if (::unlink(path_of(name).c_str()) == 0) return sync_directory(directory_);
  if (errno == ENOENT) return fail(ErrorKind::kNotFound, "no image '" + std::string(name) + "'");
  return fail_errno("remove image '" + std::string(name) + "'");
}

Result<std::vector<std::string>> Catalogue::names() const {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error))
    if (std::string name = entry.path().filename(); name.ends_with(kSuffix)) {
      name.resize(name.size() - kSuffix.size());
      if (check_image_name(name)) out.push_back(std::move(name));
    }
  if (error) return fail(ErrorKind::kIo, "list " + directory_ + ": " + error.message());
  std::ranges::sort(out);
  return out;
}

}  // namespace ramet::commit
