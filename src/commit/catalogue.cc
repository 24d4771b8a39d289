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

bool is_plain(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

tl::unexpected<Error> no_image(std::string_view name) {
  return fail(ErrorKind::kNotFound, "no image '" + std::string(name) + "'");
}

}  // namespace

Status check_image_name(std::string_view name) {
  const bool good = !name.empty() && name.size() <= kMaxName && is_plain(name[0]) &&
                    std::ranges::all_of(name, [](char c) { return is_plain(c) || c == '.' || c == '_' || c == '-'; });
  if (good) return {};
  return fail(ErrorKind::kInvalid, "image name '" + std::string(name.substr(0, kMaxName)) +
                                       "'; 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit");
}

Result<Catalogue> Catalogue::open(const std::string& directory) {
  TRY(make_lasting_directories(directory, 0700));
  return Catalogue(directory);
}

std::string Catalogue::path_of(std::string_view name, std::string_view suffix) const {
  return directory_ + "/" + std::string(name) + std::string(suffix);
}

Result<std::string> Catalogue::read(std::string_view name, std::string_view suffix) const {
  TRY(check_image_name(name));
  Result<std::string> bytes = read_file(path_of(name, suffix), kMaxRootBytes);
  if (!bytes && bytes.error().kind() == ErrorKind::kNotFound) return no_image(name);
  return bytes;
}

Status Catalogue::add(std::string_view name, const image::ManifestRoot& root) {
  TRY(check_image_name(name));
  if (std::error_code error; std::filesystem::exists(path_of(name, kImage), error))
    return fail(ErrorKind::kExists, "there is an image '" + std::string(name) + "' already");
  return replace_file(path_of(name, kImage), image::encode_manifest_root(root), 0600);
}

Result<image::ManifestRoot> Catalogue::get(std::string_view name) const {
  TRY_ASSIGN(const std::string bytes, read(name, kImage));
  return image::decode_manifest_root(as_bytes(bytes));
}

Status Catalogue::remove(std::string_view name) {
  TRY(check_image_name(name));
  const bool image = ::unlink(path_of(name, kImage).c_str()) == 0;
  if (!image && errno != ENOENT) return fail_errno("remove image '" + std::string(name) + "'");
  const bool unfinished = ::unlink(path_of(name, kUnfinished).c_str()) == 0;
  if (!unfinished && errno != ENOENT) return fail_errno("remove the unfinished import '" + std::string(name) + "'");
  return image || unfinished ? sync_directory(directory_) : no_image(name);
}

Status Catalogue::note_unfinished(std::string_view name, const Unfinished& import) {
  TRY(check_image_name(name));
  return replace_file(path_of(name, kUnfinished), encode_unfinished(import), 0600);
}

Result<Unfinished> Catalogue::unfinished(std::string_view name) const {
  TRY_ASSIGN(const std::string bytes, read(name, kUnfinished));
  return decode_unfinished(as_bytes(bytes));
}

Status Catalogue::forget_unfinished(std::string_view name) {
  TRY(check_image_name(name));
  if (::unlink(path_of(name, kUnfinished).c_str()) == 0) return sync_directory(directory_);
  if (errno == ENOENT) return {};
  return fail_errno("forget the unfinished import '" + std::string(name) + "'");
}

Result<std::vector<std::string>> Catalogue::names_with(std::string_view suffix) const {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error))
    if (std::string name = entry.path().filename(); name.ends_with(suffix)) {
      name.resize(name.size() - suffix.size());
      if (check_image_name(name)) out.push_back(std::move(name));
    }
  if (error) return fail(ErrorKind::kIo, "list " + directory_ + ": " + error.message());
  std::ranges::sort(out);
  return out;
}

}  // namespace ramet::commit
