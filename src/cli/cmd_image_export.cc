#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "base/all_zero.h"
#include "base/file.h"
#include "base/output_file.h"
#include "base/place.h"
#include "cli/commands.h"
#include "cli/text.h"
#include "cli/unpacked_directory.h"

namespace ramet::cli {
namespace {

namespace json = boost::json;

constexpr size_t kPieceBytes = 1 << 20;
constexpr size_t kBlockBytes = 4096;

std::string resource_of(const std::string& name) { return "/v1/images/" + percent_encode(name); }

enum class Shape { kFile, kDirectory };
struct Target {
  std::string format;  // of what the server sends: raw, qcow2, tar, oci, or whatever was said
  Shape shape = Shape::kFile;
};
Result<Target> target_of(const ImageOptions& options) {
  const std::string &said = options.format, &name = options.file;
  const bool slash = name.ends_with("/");
  if (said == "oci") return Target{"oci", slash ? Shape::kDirectory : Shape::kFile};
  if (said == "dir" || (said.empty() && slash)) return Target{"tar", Shape::kDirectory};
  if (!said.empty()) return Target{said};
  if (name.ends_with(".qcow2")) return Target{"qcow2"};
  if (name.ends_with(".oci") || name.ends_with(".oci.tar")) return Target{"oci"};
  if (name.ends_with(".tar")) return Target{"tar"};
  for (const char* compressed : {".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"})
    if (name.ends_with(compressed))
      return tl::unexpected<Error>(Error(ErrorKind::kInvalid, name + ": tars are written as they are, not compressed")
                                       .with_hint("Export to a file named .tar and compress that."));
  return Target{"raw"};
}

Result<std::unique_ptr<HttpStream>> open_image(Session& session, const ApiClient& api, const std::string& name,
                                               const std::string& format) {
  const Waiting waiting("converting " + name, session.quiet || session.json);
  return api.open_stream("GET", resource_of(name) + "/content" + (format == "raw" ? "" : "?format=" + percent_encode(format)));
}

// Fills whole pieces, so that zeros of them can become holes.
Result<size_t> read_piece(HttpStream& stream, std::span<std::byte> piece) {
  size_t have = 0;
  while (have < piece.size()) {
    TRY_ASSIGN(const size_t n, stream.read_some(piece.subspan(have)));
    if (n == 0) break;
    have += n;
  }
  return have;
}

Status write_sparse(int fd, std::span<const std::byte> piece, uint64_t offset) {
  for (size_t at = 0; at < piece.size();) {
    const auto zero_at = [&](size_t where) {
      return all_zero(piece.subspan(where, std::min(kBlockBytes, piece.size() - where)));
    };
    const bool zero = zero_at(at);
    size_t end = at;
    while (end < piece.size() && zero_at(end) == zero) end += std::min(kBlockBytes, piece.size() - end);
    if (!zero) TRY(pwrite_all(fd, piece.subspan(at, end - at), offset + at));
    at = end;
  }
  return {};
}

Result<uint64_t> download(HttpStream& stream, int fd, const std::string& path, Progress& progress) {
  std::vector<std::byte> piece(kPieceBytes);
  uint64_t bytes = 0;
  while (true) {
    TRY_ASSIGN(const size_t n, read_piece(stream, piece));
    if (n == 0) break;
    TRY(naming(path, write_sparse(fd, std::span(piece).first(n), bytes)));
    bytes += n;
    progress.add(n);
  }
  if (::ftruncate(fd, static_cast<off_t>(bytes)) < 0) return fail_errno("size of " + path);
  return bytes;
}

mode_t mask_of_files() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return mask;
}

// What of the files could not be kept, one line each.
void note_losses(const Session& session, const Unpacked& unpacked) {
  if (unpacked.devices) session.note(std::to_string(unpacked.devices) + " device nodes were left out: only root can make them");
  if (unpacked.changed)
    session.note(std::to_string(unpacked.changed) + " files could not be made as they are, the first: " + unpacked.not_whole);
}

Result<int> export_directory(Session& session, const ImageOptions& options, const std::string& format) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const std::unique_ptr<HttpStream> stream, open_image(session, *api, options.name, format));
  Progress progress("export " + options.name, 0, session.quiet || session.json);
  const auto read = [&](std::span<std::byte> into) -> Result<size_t> {
    TRY_ASSIGN(const size_t n, stream->read_some(into));
    progress.add(n);
    return n;
  };
  TRY_ASSIGN(const Unpacked unpacked, unpack_tar(read, options.file));
  progress.done();
  note_losses(session, unpacked);
  if (session.json)
    session.print_json(json::object{{"name", options.name},
                                    {"file", options.file},
                                    {"files", unpacked.files},
                                    {"devices_left_out", unpacked.devices},
                                    {"files_changed", unpacked.changed}});
  return 0;
}

Result<int> export_file(Session& session, const ImageOptions& options, const std::string& format) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const json::value image, api->call("GET", resource_of(options.name)));
  TRY_ASSIGN(const std::unique_ptr<HttpStream> stream, open_image(session, *api, options.name, format));
  TRY_ASSIGN(OutputFile file, OutputFile::at(options.file, 0644 & ~mask_of_files()));
  Progress progress("export " + options.name, format == "raw" ? image.at("bytes").to_number<uint64_t>() : 0,
                    session.quiet || session.json);
  TRY_ASSIGN(const uint64_t bytes, download(*stream, file.fd(), options.file, progress));
  TRY(naming(options.file, file.publish()));
  progress.done();
  if (session.json) session.print_json(json::object{{"name", options.name}, {"file", options.file}, {"bytes", bytes}});
  return 0;
}

}  // namespace

Result<int> cmd_image_export(Session& session, const ImageOptions& options) {
  TRY_ASSIGN(const Target target, target_of(options));
  return target.shape == Shape::kDirectory ? export_directory(session, options, target.format)
                                           : export_file(session, options, target.format);
}

}  // namespace ramet::cli
