// chunk/s3/http.h - one HTTP exchange at a time over kept connections, by libcurl. Bounded in time and in what is taken from
// the answer. Not here: signing, trying again, what an answer means. No redirects, no proxies, no cookies. Thread: exchange()
// from many threads. A resource.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace ramet::chunk::s3 {

struct HttpRequest {
  std::string method;  // GET, HEAD, PUT or DELETE
  std::string url;
  std::map<std::string, std::string> headers;
  std::span<const std::byte> body;
  size_t max_answer_bytes = 0;
};

struct HttpAnswer {
  int status = 0;
  std::optional<uint64_t> content_length;
  std::map<std::string, std::string> metadata;  // x-amz-meta-NAME, without that prefix
  std::vector<std::byte> body;                  // empty after HEAD
};

class HttpConnections {
 public:
  struct Options {
    Milliseconds connect_timeout{5'000};
    Milliseconds stall_timeout{10'000};  // without progress
    Milliseconds timeout{120'000};       // of a whole exchange
    std::string ca_file;                 // certificates to believe; empty: the system's
  };
  explicit HttpConnections(Options options);
  ~HttpConnections();
  HttpConnections(const HttpConnections&) = delete;
  HttpConnections& operator=(const HttpConnections&) = delete;

  // Any status is a success.   Errors: kUnavailable (no connection, or it broke), kTimeout, kCorrupt (a longer answer than
  // allowed), kNoMemory, kInvalid (URL).
  Result<HttpAnswer> exchange(const HttpRequest& request);

 private:
  void* take();
  void give_back(void* handle);

  const Options options_;
  std::mutex mutex_;
  std::vector<void*> idle_;  // CURL*: a connection each
};

}  // namespace ramet::chunk::s3
