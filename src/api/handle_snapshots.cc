#include <boost/json.hpp>

#include "api/handlers.h"
#include "api/render.h"
#include "api/requests.h"

namespace ramet::api {

namespace json = boost::json;

Status pause_sandbox(Call& call) {
  TRY_ASSIGN(const host::SandboxInfo sandbox, call.host().pause(call.id()));
  return call.exchange.respond(json_response(200, to_json(sandbox)));
}

Status resume_sandbox(Call& call) {
  TRY_ASSIGN(const host::SandboxInfo sandbox, call.host().resume(call.id()));
  return call.exchange.respond(json_response(200, to_json(sandbox)));
}

Status rollback_sandbox(Call& call) {
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY_ASSIGN(const std::string snapshot, decode_rollback(body));
  TRY_ASSIGN(const host::SandboxInfo sandbox, call.host().rollback(call.id(), snapshot));
  return call.exchange.respond(json_response(200, to_json(sandbox)));
}

Status create_snapshot(Call& call) {
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY_ASSIGN(const host::SnapshotOptions options, decode_snapshot(body));
  TRY_ASSIGN(const host::SnapshotResult made, call.host().snapshot(call.id(), options));
  Response response = json_response(201, to_json(made));
  response.headers.push_back({"Location", "/v1/snapshots/" + made.info.id});
  return call.exchange.respond(response);
}

Status list_snapshots(Call& call) {
  TRY_ASSIGN(const std::vector<host::SnapshotInfo> there, call.host().snapshots());
  json::array list;
  for (const host::SnapshotInfo& snapshot : there) list.push_back(to_json(snapshot));
  return call.exchange.respond(json_response(200, {{"snapshots", std::move(list)}}));
}

Status get_snapshot(Call& call) {
  TRY_ASSIGN(const host::SnapshotInfo snapshot, call.host().get_snapshot(call.id()));
  return call.exchange.respond(json_response(200, to_json(snapshot)));
}

Status patch_snapshot(Call& call) {
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY_ASSIGN(const host::SnapshotPatch patch, decode_snapshot_patch(body));
  TRY_ASSIGN(const host::SnapshotInfo snapshot, call.host().patch_snapshot(call.id(), patch));
  return call.exchange.respond(json_response(200, to_json(snapshot)));
}

Status delete_snapshot(Call& call) {
  TRY(call.host().remove_snapshot(call.id()));
  return answer_nothing(call.exchange);
}

}  // namespace ramet::api
