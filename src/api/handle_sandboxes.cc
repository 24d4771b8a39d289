#include <boost/json.hpp>

#include "api/console_follow.h"
#include "api/handlers.h"
#include "api/idempotency.h"
#include "api/render.h"
#include "api/requests.h"
#include "base/file.h"

namespace ramet::api {
namespace {

namespace json = boost::json;

// A create or fork may boot a template first; a repetition of it waits as long.
constexpr std::chrono::minutes kRepetitionWait{5};

// Runs `execute`, once per Idempotency-Key when the request carries one.
template <class Execute>
Status answer_once(Call& call, std::string_view body, Execute execute) {
  const std::optional<std::string> key = call.exchange.header("Idempotency-Key");
  if (!key) return call.exchange.respond(execute());
  TRY(check_idempotency_key(*key));
  TRY_ASSIGN(const Response response,
             call.context.idempotency.once(call.exchange.target(), *key, body, deadline_after(kRepetitionWait), execute));
  return call.exchange.respond(response);
}

bool has_label(const host::SandboxInfo& sandbox, std::string_view wanted) {
  if (wanted.empty()) return true;
  const size_t equals = wanted.find('=');
  const auto found = sandbox.labels.find(std::string(wanted.substr(0, equals)));
  if (found == sandbox.labels.end()) return false;
  return equals == std::string_view::npos || found->second == wanted.substr(equals + 1);
}

}  // namespace

Status list_sandboxes(Call& call) {
  json::array list;
  for (const host::SandboxInfo& sandbox : call.host().list())
    if (has_label(sandbox, call.target.get("label"))) list.push_back(to_json(sandbox));
  return call.exchange.respond(json_response(200, {{"sandboxes", std::move(list)}}));
}

Status create_sandbox(Call& call) {
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY_ASSIGN(const host::CreateOptions options, decode_create(body));
  return answer_once(call, body, [&]() -> Response {
    const Result<host::SandboxInfo> made = call.host().create(options);
    if (!made) return error_response(made.error(), call.exchange.request_id());
    Response response = json_response(201, to_json(*made));
    response.headers.push_back({"Location", "/v1/sandboxes/" + made->id});
    return response;
  });
}

Status get_sandbox(Call& call) {
  TRY_ASSIGN(const host::SandboxInfo sandbox, call.host().get(call.id()));
  return call.exchange.respond(json_response(200, to_json(sandbox)));
}

Status patch_sandbox(Call& call) {
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY_ASSIGN(const host::PatchOptions options, decode_patch(body));
  TRY_ASSIGN(const host::SandboxInfo sandbox, call.host().patch(call.id(), options));
  return call.exchange.respond(json_response(200, to_json(sandbox)));
}

Status delete_sandbox(Call& call) {
  TRY(call.host().remove(call.id()));
  return answer_nothing(call.exchange);
}

Status fork_sandbox(Call& call) {
  TRY_ASSIGN(const std::string body, read_json_body(call.exchange));
  TRY_ASSIGN(const host::ForkOptions options, decode_fork(body));
  return answer_once(call, body, [&]() -> Response {
    const Result<host::ForkResult> made = call.host().fork(call.id(), options);
    if (!made) return error_response(made.error(), call.exchange.request_id());
    return json_response(201, to_json(*made, call.exchange.request_id()));
  });
}

Status get_tree(Call& call) {
  json::array roots;
  for (const host::TreeNode& root : call.host().tree()) roots.push_back(to_json(root));
  return call.exchange.respond(json_response(200, {{"roots", std::move(roots)}}));
}

Status get_logs(Call& call) {
  TRY_ASSIGN(const bool follow, call.target.flag("follow"));
  TRY_ASSIGN(std::string text, call.host().logs(call.id()));
  if (!follow) return call.exchange.respond({200, "text/plain; charset=utf-8", std::move(text), {}});

  TRY(call.exchange.begin_stream({200, "text/plain; charset=utf-8", "", {}}));
  TRY(call.exchange.write(as_bytes(text)));
  ConsoleFollower follower(std::move(text));
  while (wait_for_client(call.exchange, std::chrono::milliseconds(500))) {
    Result<std::string> now = call.host().logs(call.id());
    if (!now) break;  // it was deleted: the log ends
    TRY(call.exchange.write(as_bytes(follower.advance(std::move(*now)))));
  }
  return call.exchange.end_stream();
}

}  // namespace ramet::api
