// api/http_server.h - HTTP/1.1 over listening sockets, blocking, one thread per connection. Knows requests and answers, no
// routes.
//
// Why threads: a handler mostly waits for a guest, and a stream may live for hours; a thread that waits costs 20 KiB and reads
// like a book. Their number is bounded; past the bound a client is told so at once with 503 instead of waiting. The same when
// no descriptor is left: one is kept to tell it.
//
// Ends: stop() first refuses new connections and ends idle ones, gives requests in flight the grace time (stopping() is true
// for them), then wakes every blocked read and write, and joins. Sandboxes are not touched. Thread: add_listener before start;
// start and stop from one thread. Owns: the listeners, the threads, every connection.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/exchange.h"
#include "base/unique_fd.h"

namespace ramet::api {

struct HttpOptions {
  size_t max_connections = 256;
  Milliseconds idle_timeout{75'000};    // between two requests of a connection
  Milliseconds header_timeout{15'000};  // from the first byte of a request to the end of its header
  Milliseconds body_timeout{60'000};    // between two pieces of a body
  Milliseconds write_timeout{60'000};   // of an answer that nobody reads; streams wait for ever, and are woken by stop()
  Milliseconds stop_grace{5'000};
};

struct AccessRecord {
  std::string request_id, method, target;
  int status = 0;
  double duration_ms = 0;
  uint64_t bytes_in = 0, bytes_out = 0;
  bool client_gone = false;
};

class HttpServer {
 public:
  using Handler = std::function<void(Exchange&)>;  // must answer; an Exchange left unanswered gets `internal`
  using AccessLog = std::function<void(const AccessRecord&)>;
  // Called with the Host and Origin headers of a request on a guarded listener; false refuses it.
  using HostGuard = std::function<bool(std::string_view host, std::string_view origin)>;

  HttpServer(HttpOptions options, Handler handler, AccessLog access_log);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // `listener` is bound and listening. A guard is given for TCP.
  void add_listener(UniqueFd listener, HostGuard guard);
  Status start();
  void stop();

 private:
  struct Listener {
    UniqueFd fd;
    HostGuard guard;
  };
  class Connection;
  friend class Connection;

  void accept_loop();
  void accept_one(const Listener& listener);
  void refuse_one(const Listener& listener);
  void reap_finished();

  const HttpOptions options_;
  const Handler handler_;
  const AccessLog access_log_;
  std::vector<Listener> listeners_;
  UniqueFd draining_fd_;  // eventfds, never read: readable from then on
  UniqueFd stop_fd_;
  UniqueFd finished_fd_;  // counts finished connections
  UniqueFd spare_fd_;     // acceptor's: given up to accept and refuse when there is no other
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::list<std::unique_ptr<Connection>> connections_;
  std::thread acceptor_;
};

}  // namespace ramet::api
