// api/exchange.h - one request and its answer, as the handlers see it. The server implements it over a socket, tests over
// strings. Not here: sockets, HTTP syntax (http_server.h), routes (router.h). Thread: one thread for its whole life. Errors of
// reading: kCancelled (client gone), kTimeout (client silent too long), kInvalid (malformed body).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace ramet::api {

struct Header {
  std::string name;
  std::string value;
};

struct Response {
  int status = 200;
  std::string content_type;  // empty together with an empty body
  std::string body;
  std::vector<Header> headers;
};

class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual std::string_view method() const = 0;
  // As sent: path and query, still percent-encoded.
  virtual std::string_view target() const = 0;
  virtual std::optional<std::string> header(std::string_view name) const = 0;
  virtual std::string_view request_id() const = 0;
  virtual bool has_body() const = 0;

  // Next bytes of the body, as they come; 0 = end of the body. Sends `100 Continue` first when the client waits for it.
  virtual Result<size_t> read_body(std::span<std::byte> into) = 0;
  // nullopt: the client may be silent as long as it wants (an interactive session).
  virtual void set_body_timeout(std::optional<Milliseconds> idle) = 0;

  // The whole answer. Requires: nothing was answered yet.   Errors: kCancelled.
  virtual Status respond(const Response& response) = 0;
  // An answer of unknown length: begin, any number of writes, end. Each write is on its way when it returns.
  // Without end() the client sees a cut stream.   Errors: kCancelled.
  virtual Status begin_stream(const Response& head) = 0;
  virtual Status write(std::span<const std::byte> bytes) = 0;
  virtual Status end_stream() = 0;
  virtual bool answered() const = 0;  // respond or begin_stream was called

  virtual bool client_gone() = 0;  // asks the socket, does not block
  virtual bool stopping() const = 0;
  bool nobody_waits() { return stopping() || client_gone(); }
  // The client's socket, to be polled for POLLRDHUP beside other descriptors; -1 when there is none (tests).
  virtual int client_fd() const = 0;
};

}  // namespace ramet::api
