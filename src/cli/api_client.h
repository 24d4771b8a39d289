// cli/api_client.h - calls of the API with JSON in and out; error answers become Error values with the server's hint.
// Not here: HTTP (http_client.h), printing. Thread: one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "cli/http_client.h"

namespace ramet::cli {

// Percent-encodes everything that is not unreserved (RFC 3986).
std::string percent_encode(std::string_view text);

// The Error of an error answer; the request id stands in the hint.
Error error_of_reply(const HttpReply& reply);
// Of an "error" object inside an answer or an event.
Error error_of_object(const boost::json::value& error);
Result<boost::json::value> parse_json(std::string_view text);

class ApiClient {
 public:
  explicit ApiClient(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}
  const Endpoint& endpoint() const { return endpoint_; }

  // null for an answer without a body.
  Result<boost::json::value> call(std::string_view method, const std::string& target,
                                  const std::optional<boost::json::object>& body = std::nullopt) const;
  // The answer as the server wrote it.
  Result<std::string> call_text(std::string_view method, const std::string& target,
                                const std::optional<boost::json::object>& body = std::nullopt) const;
  // A stream whose head was read and is a success.
  Result<std::unique_ptr<HttpStream>> open_stream(std::string_view method, const std::string& target,
                                                  const std::optional<boost::json::object>& body = std::nullopt) const;
  // A chunked upload; the caller writes, finishes, and takes the answer by `finish_upload`.
  Result<std::unique_ptr<HttpStream>> open_upload(std::string_view method, const std::string& target,
                                                  std::vector<std::pair<std::string, std::string>> headers = {}) const;
  static Result<boost::json::value> finish_upload(HttpStream& stream);
  // The rest of an answer whose head was read.
  static Result<boost::json::value> read_answer(HttpStream& stream, HttpReply head);

  // An id, its start (`sb-` may be left out), or a `name` label -> id.   Errors: kNotFound, kConflict (names the candidates).
  Result<std::string> resolve(const std::string& reference) const;

 private:
  Endpoint endpoint_;
};

// The part of resolve() that looks at a list.
Result<std::string> resolve_in(const boost::json::array& sandboxes, const std::string& reference);

}  // namespace ramet::cli
