// cli/http_client.h - HTTP/1.1 to one server over a unix socket or TCP: whole calls, and streams in both directions.
// Not here: which server (server_pick.h), what the answers mean (api_client.h). Thread: one per object; abort() from any other.
// Errors: kUnavailable (no server, it went away), kInvalid (URL), kCorrupt (not HTTP).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet::cli {

struct Endpoint {
  std::string unix_path;  // not empty: a unix socket, else TCP
  std::string host;
  uint16_t port = 0;

  std::string url() const;
};
// "unix:///run/ramet/rametd.sock", a plain socket path, or "http://127.0.0.1:7080".
Result<Endpoint> parse_url(const std::string& url);
Result<UniqueFd> connect_to(const Endpoint& endpoint);

struct HttpRequest {
  std::string method;
  std::string target;
  std::vector<std::pair<std::string, std::string>> headers;
};

struct HttpReply {
  int status = 0;
  std::string content_type;
  std::string request_id;
  std::string body;
};

// One request on a connection of its own.
class HttpStream {
 public:
  enum class Body { kNone, kWhole, kChunked };
  // Connects and sends the head; with kWhole also `whole`.
  static Result<std::unique_ptr<HttpStream>> open(const Endpoint& endpoint, const HttpRequest& request, Body body,
                                                  std::string_view whole = {});
  ~HttpStream();

  // kChunked only.
  Status write(std::span<const std::byte> piece);
  Status finish_body();

  // Waits for the answer's head; `body` stays empty.
  Result<HttpReply> read_head();
  // Next bytes of the answer as they come; 0 = its regular end.   Errors: kUnavailable (cut).
  Result<size_t> read_some(std::span<std::byte> into);
  Result<std::string> read_rest(size_t max_bytes);
  // Wakes a blocked call; the connection is of no use any more.
  void abort();

 private:
  struct Impl;
  explicit HttpStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ramet::cli
