// rametd - wires the host (src/host) to its API (src/api). Everything that does something is there; this is the order of it.
#include <signal.h>

#include <cstdio>
#include <cstring>

#include "api/host_guard.h"
#include "api/http_server.h"
#include "api/idempotency.h"
#include "api/listen.h"
#include "api/live_commands.h"
#include "api/routes.h"
#include "base/file.h"
#include "base/log.h"
#include "host/host.h"
#include "options.h"

namespace ramet::daemon {
namespace {

// Blocked in every thread from the start, so that only wait_for_stop sees them. A closed socket is an error value, not a
// signal.
sigset_t block_signals() {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

void wait_for_stop(const sigset_t& set) {
  int signal = 0;
  sigwait(&set, &signal);
  log_info(std::string("stopping: ") + strsignal(signal) + "; sandboxes live on");
}

void log_request(const api::AccessRecord& r) {
  char numbers[160];
  snprintf(numbers, sizeof numbers, " status=%d ms=%.1f in=%llu out=%llu%s", r.status, r.duration_ms,
           static_cast<unsigned long long>(r.bytes_in), static_cast<unsigned long long>(r.bytes_out),
           r.client_gone ? " client=gone" : "");
  log_line(r.status >= 500 ? LogLevel::kWarn : LogLevel::kInfo,
           "request " + r.request_id + " " + r.method + " " + r.target.substr(0, 300) + numbers);
}

Status add_listeners(const Options& options, api::HttpServer& server) {
  const std::string socket_path = options.host.runtime_dir + "/rametd.sock";
  TRY_ASSIGN(UniqueFd unix_socket, api::listen_on_unix(socket_path));
  server.add_listener(std::move(unix_socket), nullptr);
  log_info("listening on " + socket_path);
  for (const std::string& address : options.listen) {
    const api::Reach reach = options.allow_remote ? api::Reach::kAnyAddress : api::Reach::kLoopbackOnly;
    TRY_ASSIGN(api::TcpListener tcp, api::listen_on_tcp(address, reach));
    server.add_listener(std::move(tcp.fd), api::HostGuard(options.allow_hosts));
    log_info("listening on http://" + tcp.address);
  }
  return {};
}

Status run(const Options& options, const sigset_t& stop_signals) {
  TRY(make_directories(options.host.runtime_dir, 0700));
  TRY_ASSIGN(const std::unique_ptr<host::Host> host, host::Host::open(options.host));
  api::IdempotencyTable idempotency;
  api::LiveCommands live;
  api::Context context{*host, idempotency, live};
  api::HttpServer server(
      options.http, [&](api::Exchange& exchange) { api::dispatch(context, exchange); }, log_request);
  TRY(add_listeners(options, server));
  TRY(server.start());
  wait_for_stop(stop_signals);
  server.stop();
  return {};
}

}  // namespace
}  // namespace ramet::daemon

int main(int argc, char** argv) {
  using namespace ramet;
  const daemon::Parsed parsed = daemon::parse_command_line(argc, argv);
  if (parsed.exit_code) return *parsed.exit_code;
  const sigset_t stop_signals = daemon::block_signals();
  log_init("rametd", "", parsed.options.log_level);
  const Status done = daemon::run(parsed.options, stop_signals);
  if (done) return 0;
  log_error("cannot start: " + done.error().to_string() + (done.error().hint().empty() ? "" : " - " + done.error().hint()));
  return 1;
}
