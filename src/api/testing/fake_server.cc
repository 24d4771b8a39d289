// api_fake_server - the real HTTP server over the fake host, for tests in other languages.
//   api_fake_server SOCKET [ADDRESS:PORT]   serves until SIGTERM; prints "ready" (and the TCP address) on stdout
//   api_fake_server --table                 prints routes and error codes as JSON
#include <signal.h>

#include <cstdio>
#include <cstring>

#include <boost/json.hpp>

#include "api/error_table.h"
#include "api/host_guard.h"
#include "api/http_server.h"
#include "api/idempotency.h"
#include "api/listen.h"
#include "api/live_commands.h"
#include "api/routes.h"
#include "api/testing/fake_host.h"

namespace {

using namespace ramet;
using namespace ramet::api;

int print_table() {
  boost::json::array routes_json, errors;
  for (const Route& r : routes())
    routes_json.push_back(boost::json::object{{"method", r.method}, {"path", r.pattern}, {"operation", r.operation}});
  for (const ErrorRow& e : error_rows()) errors.push_back(boost::json::object{{"code", e.code}, {"status", e.status}});
  printf("%s\n", boost::json::serialize(boost::json::object{{"routes", routes_json}, {"errors", errors}}).c_str());
  return 0;
}

Status serve(int argc, char** argv) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  testing::FakeHost host;
  IdempotencyTable idempotency;
  LiveCommands live;
  Context context{host, idempotency, live};
  HttpOptions options;
  options.max_connections = 32;
  options.stop_grace = Milliseconds(300);
  HttpServer server(
      options, [&](Exchange& exchange) { dispatch(context, exchange); }, nullptr);
  TRY_ASSIGN(UniqueFd unix_socket, listen_on_unix(argv[1]));
  server.add_listener(std::move(unix_socket), nullptr);
  std::string address;
  if (argc > 2) {
    TRY_ASSIGN(TcpListener tcp, listen_on_tcp(argv[2], Reach::kLoopbackOnly));
    address = tcp.address;
    server.add_listener(std::move(tcp.fd), HostGuard({"ramet.test"}));
  }
  TRY(server.start());
  printf("ready %s\n", address.c_str());
  fflush(stdout);
  int signal = 0;
  sigwait(&set, &signal);
  server.stop();
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--table") == 0) return print_table();
  if (argc < 2) return 2;
  const Status done = serve(argc, argv);
  if (done) return 0;
  fprintf(stderr, "api_fake_server: %s\n", done.error().to_string().c_str());
  return 1;
}
