// api/routes.h - the route table as data, and what a handler is given. Checked against api/openapi.yaml by contract_test.py.
// Not here: how a handler works (handle_*.cc), HTTP. Thread: the table is constant; a Call belongs to one request.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "api/exchange.h"
#include "api/router.h"
#include "base/result.h"
#include "host/host.h"

namespace ramet::api {

class IdempotencyTable;
class LiveCommands;

// What all handlers share; lives as long as the server.
struct Context {
  host::Host& host;
  IdempotencyTable& idempotency;
  LiveCommands& live;
};

struct Call {
  Context& context;
  Exchange& exchange;
  Target target;
  PathParameters path;

  host::Host& host() const { return context.host; }
  std::string id() const { return std::string(path["id"]); }
};

// Answers the exchange, or returns an error for the caller to answer. An error after begin_stream cuts the stream.
using Handler = Status (*)(Call&);

struct Route {
  std::string_view method;
  std::string_view pattern;
  std::string_view operation;  // operationId
  Handler handler;
};

std::span<const Route> routes();

// Finds the route, runs it, turns errors into answers.
void dispatch(Context& context, Exchange& exchange);

}  // namespace ramet::api
