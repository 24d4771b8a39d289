#include <boost/json.hpp>

#include "api/handlers.h"
#include "api/render.h"
#include "api/utf8.h"

namespace ramet::api {

Status get_health(Call& call) {
  const host::Health health = call.host().health();
  boost::json::object body;
  body["status"] = call.exchange.stopping() ? "stopping" : health.ok ? "ok" : "degraded";
  body["version"] = health.version;
  body["detail"] = to_valid_utf8(health.detail);
  return call.exchange.respond(json_response(200, body));
}

Status get_host(Call& call) { return call.exchange.respond(json_response(200, to_json(call.host().report()))); }

}  // namespace ramet::api
