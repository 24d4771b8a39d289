#include "api/routes.h"

#include <array>

#include <boost/json.hpp>

#include "api/error_table.h"
#include "api/handlers.h"
#include "api/json_fields.h"
#include "api/render.h"
#include "api/utf8.h"

namespace ramet::api {
namespace {

constexpr std::array kRoutes = {
    Route{"GET", "/v1/health", "getHealth", get_health},
    Route{"GET", "/v1/host", "getHost", get_host},
    Route{"GET", "/v1/tree", "getTree", get_tree},
    Route{"GET", "/v1/sandboxes", "listSandboxes", list_sandboxes},
    Route{"POST", "/v1/sandboxes", "createSandbox", create_sandbox},
    Route{"GET", "/v1/sandboxes/{id}", "getSandbox", get_sandbox},
    Route{"PATCH", "/v1/sandboxes/{id}", "patchSandbox", patch_sandbox},
    Route{"DELETE", "/v1/sandboxes/{id}", "deleteSandbox", delete_sandbox},
    Route{"POST", "/v1/sandboxes/{id}/fork", "forkSandbox", fork_sandbox},
    Route{"POST", "/v1/sandboxes/{id}/pause", "pauseSandbox", pause_sandbox},
    Route{"POST", "/v1/sandboxes/{id}/resume", "resumeSandbox", resume_sandbox},
    Route{"POST", "/v1/sandboxes/{id}/rollback", "rollbackSandbox", rollback_sandbox},
    Route{"POST", "/v1/sandboxes/{id}/snapshots", "createSnapshot", create_snapshot},
    Route{"GET", "/v1/snapshots", "listSnapshots", list_snapshots},
    Route{"GET", "/v1/snapshots/{id}", "getSnapshot", get_snapshot},
    Route{"PATCH", "/v1/snapshots/{id}", "patchSnapshot", patch_snapshot},
    Route{"DELETE", "/v1/snapshots/{id}", "deleteSnapshot", delete_snapshot},
    Route{"POST", "/v1/sandboxes/{id}/image", "commitDisk", commit_disk},
    Route{"GET", "/v1/sandboxes/{id}/logs", "getLogs", get_logs},
    Route{"POST", "/v1/sandboxes/{id}/exec", "exec", exec},
    Route{"GET", "/v1/sandboxes/{id}/processes", "listProcesses", list_processes},
    Route{"GET", "/v1/sandboxes/{id}/processes/{pid}/output", "attachProcess", attach_process},
    Route{"POST", "/v1/sandboxes/{id}/processes/{pid}/stdin", "writeStdin", write_stdin},
    Route{"POST", "/v1/sandboxes/{id}/processes/{pid}/signal", "signalProcess", signal_process},
    Route{"POST", "/v1/sandboxes/{id}/processes/{pid}/resize", "resizeTerminal", resize_terminal},
    Route{"GET", "/v1/sandboxes/{id}/files", "readFile", read_file},
    Route{"PUT", "/v1/sandboxes/{id}/files", "writeFile", write_file},
    Route{"DELETE", "/v1/sandboxes/{id}/files", "removeFile", remove_file},
    Route{"GET", "/v1/sandboxes/{id}/files/list", "listFiles", list_files},
    Route{"GET", "/v1/sandboxes/{id}/files/stat", "statFile", stat_file},
    Route{"POST", "/v1/sandboxes/{id}/files/mkdir", "makeDirectory", make_directory},
    Route{"POST", "/v1/sandboxes/{id}/files/move", "moveFile", move_file},
    Route{"GET", "/v1/templates", "listTemplates", list_templates},
    Route{"PUT", "/v1/templates/{name}", "commitTemplate", commit_template},
    Route{"POST", "/v1/templates/{name}", "saveTemplate", save_template},
    Route{"DELETE", "/v1/templates/{name}", "deleteTemplate", delete_template},
    Route{"PUT", "/v1/templates/{name}/files/{file}", "uploadTemplateFile", upload_template_file},
    Route{"GET", "/v1/images", "listImages", list_images},
    Route{"GET", "/v1/images/{name}", "getImage", get_image},
    Route{"POST", "/v1/images/{name}", "importImage", import_image},
    Route{"DELETE", "/v1/images/{name}", "deleteImage", delete_image},
    Route{"GET", "/v1/images/{name}/content", "exportImage", export_image},
    Route{"GET", "/v1/images/{name}/diff", "diffImages", diff_images},
};

Response refusal(std::string_view code, std::string_view message, std::string_view request_id) {
  const ErrorRow& row = row_of_code(code);
  return {row.status, "application/json", error_body(row, message, "", request_id), {}};
}

// What to say when no route was found: 404, or 405 with the methods this path has.
Response unrouted(const Target& target, const Exchange& exchange) {
  std::string allowed;
  for (const Route& route : kRoutes)
    if (match_path(route.pattern, target.segments)) allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
  const std::string what = to_valid_utf8(std::string(exchange.method()) + " " + std::string(exchange.target().substr(0, 200)));
  if (allowed.empty()) return refusal("not_found", "there is no route `" + what + "`", exchange.request_id());
  Response response =
      refusal("method_not_allowed", "`" + what + "` is not possible; this path takes " + allowed, exchange.request_id());
  response.headers.push_back({"Allow", allowed});
  return response;
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

void dispatch(Context& context, Exchange& exchange) {
  Result<Target> target = parse_target(exchange.target());
  if (!target) {
    (void)exchange.respond(error_response(target.error(), exchange.request_id()));
    return;
  }
  for (const Route& route : kRoutes) {
    if (route.method != exchange.method()) continue;
    std::optional<PathParameters> path = match_path(route.pattern, target->segments);
    if (!path) continue;
    Call call{context, exchange, std::move(*target), std::move(*path)};
    const Status done = route.handler(call);
    if (!done && !exchange.answered()) (void)exchange.respond(error_response(done.error(), exchange.request_id()));
    return;
  }
  (void)exchange.respond(unrouted(*target, exchange));
}

Result<std::string> read_json_body(Exchange& exchange) {
  std::string body;
  if (!exchange.has_body()) return body;
  if (const std::optional<std::string> type = exchange.header("Content-Type"))
    if (!type->starts_with("application/json") && *type != "application/x-www-form-urlencoded")  // what `curl -d` says
      return fail(ErrorKind::kInvalid,
                  "Content-Type is `" + to_valid_utf8(type->substr(0, 80)) + "`, this route takes application/json");
  std::array<std::byte, 16 * 1024> piece;
  while (true) {
    TRY_ASSIGN(const size_t n, exchange.read_body(piece));
    if (n == 0) return body;
    if (body.size() + n > kMaxJsonBytes)
      return fail(ErrorKind::kInvalid,
                  "the body has more than " + std::to_string(kMaxJsonBytes) + " bytes, the limit for JSON");
    body.append(reinterpret_cast<const char*>(piece.data()), n);
  }
}

Response json_response(int status, const boost::json::object& body) {
  return {status, "application/json", to_text(body) + "\n", {}};
}

Response error_response(const Error& error, std::string_view request_id) {
  boost::json::object body;
  body["error"] = error_object(error, request_id);
  return json_response(row_of_kind(error.kind()).status, body);
}

Status answer_nothing(Exchange& exchange) { return exchange.respond({204, "", "", {}}); }

}  // namespace ramet::api
