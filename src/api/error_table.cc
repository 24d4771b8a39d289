#include "api/error_table.h"

#include <array>
#include <cstring>

#include <boost/json.hpp>

#include "api/utf8.h"

namespace ramet::api {
namespace {

constexpr std::array kRows = {
    ErrorRow{"invalid", 400, "Correct the request; api/openapi.yaml has every field and limit."},
    ErrorRow{"not_found", 404,
             "Check the name; `ramet ls`, `ramet template ls`, `ramet image ls`, `ramet snapshot ls` or the directory above "
             "show what there is."},
    ErrorRow{"exists", 409, "Choose another name or remove the old one first."},
    ErrorRow{"conflict", 409, "Look at its state (`ramet ls`) and try again when it allows this."},
    ErrorRow{
        "no_space", 507,
        "Free disk space on the host: end sandboxes (`ramet kill`) or remove images (`ramet image rm`) that are not needed."},
    ErrorRow{"no_memory", 507, "End sandboxes that are not needed (`ramet kill`), or ask for less memory."},
    ErrorRow{"permission", 403, "Act as another user of the sandbox, e.g. `user` = `root` (`ramet ... -u root`)."},
    ErrorRow{"timeout", 504, "Try again; if it repeats, look at `ramet logs ID` and the daemon's log."},
    ErrorRow{"unavailable", 503, "Look at `ramet logs ID` and `ramet doctor`."},
    ErrorRow{"unsupported", 501, "`ramet doctor` shows what this machine lacks."},
    ErrorRow{"corrupt", 500, "Upload or build the files again."},
    ErrorRow{"io", 500, "Look at the host's disk and the daemon's log."},
    ErrorRow{"cancelled", 499, "The caller went away before the end."},
    ErrorRow{"guest_not_quiescent", 409, "Try again when the guest is less busy, or fork with `strict: false`."},
    ErrorRow{"internal", 500, "This is a bug in Ramet. Please report it with the daemon's log lines of this request id."},
    ErrorRow{"method_not_allowed", 405, "The Allow header lists what this path takes."},
    ErrorRow{"forbidden_origin", 403,
             "Use the loopback address, or start rametd with `--allow-host NAME`; web pages of others are refused."},
    ErrorRow{"too_many_connections", 503,
             "Close streams that nobody reads, or start rametd with a larger `--max-connections`."},
};

std::string errno_name(int err) {
  const char* name = strerrorname_np(err);
  return name != nullptr ? name : std::to_string(err);
}

}  // namespace

std::span<const ErrorRow> error_rows() { return kRows; }

const ErrorRow& row_of_code(std::string_view code) {
  for (const ErrorRow& row : kRows)
    if (row.code == code) return row;
  return row_of_code("internal");
}

const ErrorRow& row_of_kind(ErrorKind kind) { return row_of_code(kind_name(kind)); }

boost::json::object error_object(const ErrorRow& row, std::string_view message, std::string_view hint,
                                 std::string_view request_id) {
  boost::json::object o;
  o["code"] = row.code;
  o["message"] = to_valid_utf8(message);
  o["hint"] = to_valid_utf8(hint.empty() ? row.hint : hint);
  o["details"] = boost::json::object();
  o["request_id"] = request_id;
  return o;
}

boost::json::object error_object(const Error& error, std::string_view request_id) {
  boost::json::object o = error_object(row_of_kind(error.kind()), error.message(), error.hint(), request_id);
  if (error.err() != 0) o["details"].as_object()["errno"] = errno_name(error.err());
  return o;
}

std::string error_body(const ErrorRow& row, std::string_view message, std::string_view hint, std::string_view request_id) {
  boost::json::object body;
  body["error"] = error_object(row, message, hint, request_id);
  return boost::json::serialize(body);
}

}  // namespace ramet::api
