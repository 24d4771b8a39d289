#include "commit/snapshot_catalogue.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/file.h"
#include "commit/catalogue.h"

namespace ramet::commit {
namespace {

// What a crash in replace_file() leaves behind ends otherwise.
constexpr std::string_view kSuffix = ".snapshot";
// Two roots of the largest images (32 bytes for 128 MiB of memory, 4 GiB of disk), and the rest.
constexpr size_t kMaxRecordBytes = 64u << 20;

tl::unexpected<Error> no_snapshot(std::string_view id) {
  return fail(ErrorKind::kNotFound, "no snapshot '" + std::string(id) + "'");
}

Status check_id(std::string_view id) {
  if (check_image_name(id)) return {};
  return fail(ErrorKind::kInvalid, "snapshot id '" + std::string(id.substr(0, 64)) +
                                       "'; 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit");
}

}  // namespace

Result<SnapshotCatalogue> SnapshotCatalogue::open(const std::string& directory) {
  TRY(make_lasting_directories(directory, 0700));
  return SnapshotCatalogue(directory);
}

std::string SnapshotCatalogue::path_of(std::string_view id) const {
  return directory_ + "/" + std::string(id) + std::string(kSuffix);
}

Status SnapshotCatalogue::write(std::string_view id, const SnapshotRecord& record) {
  TRY_ASSIGN(const std::string bytes, encode_snapshot(record));
  return replace_file(path_of(id), bytes, 0600);
}

Status SnapshotCatalogue::add(std::string_view id, const SnapshotRecord& record) {
  TRY(check_id(id));
  if (std::error_code error; std::filesystem::exists(path_of(id), error))
    return fail(ErrorKind::kExists, "there is a snapshot '" + std::string(id) + "' already");
  return write(id, record);
}

Result<SnapshotRecord> SnapshotCatalogue::get(std::string_view id) const {
  TRY(check_id(id));
  Result<std::string> bytes = read_file(path_of(id), kMaxRecordBytes);
  if (!bytes && bytes.error().kind() == ErrorKind::kNotFound) return no_snapshot(id);
  if (!bytes) return tl::unexpected<Error>(bytes.error());
  Result<SnapshotRecord> record = decode_snapshot(as_bytes(*bytes));
  if (!record) return tl::unexpected<Error>(std::move(record).error().with_context("snapshot '" + std::string(id) + "'"));
  return record;
}

Status SnapshotCatalogue::replace_details(std::string_view id, std::string details) {
  TRY_ASSIGN(SnapshotRecord record, get(id));
  record.details = std::move(details);
  return write(id, record);
}

Status SnapshotCatalogue::remove(std::string_view id) {
  TRY(check_id(id));
  if (::unlink(path_of(id).c_str()) == 0) return sync_directory(directory_);
  if (errno == ENOENT) return no_snapshot(id);
  return fail_errno("remove snapshot '" + std::string(id) + "'");
}

Result<std::vector<std::string>> SnapshotCatalogue::ids() const {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error))
    if (std::string id = entry.path().filename(); id.ends_with(kSuffix)) {
      id.resize(id.size() - kSuffix.size());
      if (check_id(id)) out.push_back(std::move(id));
    }
  if (error) return fail(ErrorKind::kIo, "list " + directory_ + ": " + error.message());
  std::ranges::sort(out);
  return out;
}

}  // namespace ramet::commit
