#include <array>

#include <boost/json.hpp>

#include "api/handlers.h"
#include "api/render.h"
#include "api/requests.h"
#include "base/file.h"

namespace ramet::api {
namespace {

namespace json = boost::json;

// A guest that neither gives nor takes a piece of a file for so long is stuck.
constexpr std::chrono::seconds kPieceWait{60};
constexpr std::chrono::minutes kSyncWait{10};
constexpr uint32_t kMaxListDepth = 64;

struct FileCall {
  std::string path, user;
};
Result<FileCall> file_call(const Call& call) {
  TRY_ASSIGN(std::string path, check_guest_path(call.target.get("path"), "path"));
  TRY_ASSIGN(std::string user, check_user_name(call.target.get("user")));
  return FileCall{std::move(path), std::move(user)};
}

}  // namespace

Status read_file(Call& call) {
  TRY_ASSIGN(const FileCall file, file_call(call));
  host::ReadOptions options;
  options.user = file.user;
  TRY_ASSIGN(options.offset, decode_offset(call.target.get("offset"), "offset"));
  TRY_ASSIGN(options.length, decode_offset(call.target.get("length"), "length"));
  TRY_ASSIGN(const std::unique_ptr<host::FileReader> reader, call.host().read_file(call.id(), file.path, options));
  // The first piece before the head: an error of opening still gets its own status.
  TRY_ASSIGN(std::optional<std::string> piece, reader->next(deadline_after(kPieceWait)));
  TRY(call.exchange.begin_stream({200, "application/octet-stream", "", {}}));
  while (piece) {
    TRY(call.exchange.write(as_bytes(*piece)));
    TRY_ASSIGN(piece, reader->next(deadline_after(kPieceWait)));
  }
  return call.exchange.end_stream();
}

Status write_file(Call& call) {
  TRY_ASSIGN(const FileCall file, file_call(call));
  host::WriteOptions options;
  options.user = file.user;
  if (!call.target.get("mode").empty()) {
    TRY_ASSIGN(options.permissions, decode_mode(call.target.get("mode")));
  }
  TRY_ASSIGN(const std::unique_ptr<host::FileWriter> writer, call.host().write_file(call.id(), file.path, options));
  std::array<std::byte, 64 * 1024> piece;
  while (true) {
    TRY_ASSIGN(const size_t n, call.exchange.read_body(piece));
    if (n == 0) break;
    TRY(writer->write(std::span(piece).first(n), deadline_after(kPieceWait)));
  }
  TRY_ASSIGN(const host::FileInfo info, writer->finish(deadline_after(kSyncWait)));
  return call.exchange.respond(json_response(200, to_json(info)));
}

Status remove_file(Call& call) {
  TRY_ASSIGN(const FileCall file, file_call(call));
  TRY_ASSIGN(const bool recursive, call.target.flag("recursive"));
  TRY(call.host().remove_file(call.id(), file.path, recursive, file.user));
  return answer_nothing(call.exchange);
}

Status list_files(Call& call) {
  TRY_ASSIGN(const FileCall file, file_call(call));
  TRY_ASSIGN(uint64_t depth, decode_offset(call.target.get("depth"), "depth"));
  if (depth > kMaxListDepth) return fail(ErrorKind::kInvalid, "`depth` is " + std::to_string(depth) + ", the limit is 64");
  if (depth == 0) depth = 1;
  TRY_ASSIGN(const std::vector<host::FileInfo> files,
             call.host().list_files(call.id(), file.path, static_cast<uint32_t>(depth), file.user));
  json::array entries;
  for (const host::FileInfo& f : files) entries.push_back(to_json(f));
  return call.exchange.respond(json_response(200, {{"entries", std::move(entries)}}));
}

Status stat_file(Call& call) {
  TRY_ASSIGN(const FileCall file, file_call(call));
  TRY_ASSIGN(const host::FileInfo info, call.host().stat_file(call.id(), file.path, file.user));
  return call.exchange.respond(json_response(200, to_json(info)));
}

Status make_directory(Call& call) {
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY_ASSIGN(const MkdirRequest request, decode_mkdir(body));
  TRY(call.host().make_dir(call.id(), request.path, request.parents, request.permissions, request.user));
  return answer_nothing(call.exchange);
}

Status move_file(Call& call) {
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY_ASSIGN(const MoveRequest request, decode_move(body));
  TRY(call.host().move_file(call.id(), request.from, request.to, request.user));
  return answer_nothing(call.exchange);
}

}  // namespace ramet::api
