#include "cli/api_client.h"

#include <algorithm>
#include <vector>

namespace ramet::cli {
namespace {

namespace json = boost::json;

constexpr size_t kMaxAnswerBytes = 256u << 20;

std::string text_of(const json::value* value) {
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

}  // namespace

std::string percent_encode(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    const bool unreserved = (u >= 'a' && u <= 'z') || (u >= 'A' && u <= 'Z') || (u >= '0' && u <= '9') || c == '-' ||
                            c == '.' || c == '_' || c == '~';
    if (unreserved) {
      out += c;
    } else {
      out += '%';
      out += kHex[u >> 4];
      out += kHex[u & 15];
    }
  }
  return out;
}

Result<json::value> parse_json(std::string_view text) {
  json::parse_options options;
  options.max_depth = 8192;  // a tree of forks nests two levels per generation
  json::error_code ec;
  json::value value = json::parse(text, ec, json::storage_ptr(), options);
  if (ec) return fail(ErrorKind::kCorrupt, "the server's answer is not JSON: " + ec.message());
  return value;
}

Error error_of_object(const json::value& error) {
  if (!error.is_object()) return Error(ErrorKind::kInternal, "the server sent an error without a text");
  const json::object& o = error.get_object();
  const std::string code = text_of(o.if_contains("code"));
  const std::string id = text_of(o.if_contains("request_id"));
  ErrorKind kind = kind_from_name(code);
  if (code == "method_not_allowed") kind = ErrorKind::kInvalid;
  if (code == "too_many_connections") kind = ErrorKind::kUnavailable;
  if (code == "forbidden_origin") kind = ErrorKind::kPermission;
  std::string hint = text_of(o.if_contains("hint"));
  if (!id.empty()) hint += (hint.empty() ? "(" : " (") + id + ")";
  return Error(kind, text_of(o.if_contains("message"))).with_hint(std::move(hint));
}

Error error_of_reply(const HttpReply& reply) {
  const Result<json::value> body = parse_json(reply.body);
  if (body && body->is_object())
    if (const json::value* error = body->get_object().if_contains("error")) return error_of_object(*error);
  return Error(ErrorKind::kInternal, "the server answered with status " + std::to_string(reply.status))
      .with_hint("Is this a rametd? Look at --url.");
}

Result<std::unique_ptr<HttpStream>> ApiClient::open_stream(std::string_view method, const std::string& target,
                                                           const std::optional<json::object>& body) const {
  HttpRequest request{std::string(method), target, {}};
  if (body) request.headers.emplace_back("Content-Type", "application/json");
  TRY_ASSIGN(std::unique_ptr<HttpStream> stream,
             HttpStream::open(endpoint_, request, body ? HttpStream::Body::kWhole : HttpStream::Body::kNone,
                              body ? json::serialize(*body) : std::string()));
  TRY_ASSIGN(HttpReply head, stream->read_head());
  if (head.status < 300) return stream;
  TRY_ASSIGN(head.body, stream->read_rest(kMaxAnswerBytes));
  return tl::unexpected(error_of_reply(head));
}

Result<std::string> ApiClient::call_text(std::string_view method, const std::string& target,
                                         const std::optional<json::object>& body) const {
  TRY_ASSIGN(const std::unique_ptr<HttpStream> stream, open_stream(method, target, body));
  return stream->read_rest(kMaxAnswerBytes);
}

Result<json::value> ApiClient::call(std::string_view method, const std::string& target,
                                    const std::optional<json::object>& body) const {
  TRY_ASSIGN(const std::string text, call_text(method, target, body));
  if (text.empty()) return json::value(nullptr);
  return parse_json(text);
}

Result<std::unique_ptr<HttpStream>> ApiClient::open_upload(std::string_view method, const std::string& target,
                                                           std::vector<std::pair<std::string, std::string>> headers) const {
  headers.emplace_back("Content-Type", "application/octet-stream");
  return HttpStream::open(endpoint_, {std::string(method), target, std::move(headers)}, HttpStream::Body::kChunked);
}

Result<json::value> ApiClient::finish_upload(HttpStream& stream) {
  (void)stream.finish_body();  // a server that refused has closed its side already; its answer says why
  TRY_ASSIGN(HttpReply head, stream.read_head());
  return read_answer(stream, std::move(head));
}

Result<json::value> ApiClient::read_answer(HttpStream& stream, HttpReply head) {
  TRY_ASSIGN(head.body, stream.read_rest(kMaxAnswerBytes));
  if (head.status >= 300) return tl::unexpected(error_of_reply(head));
  if (head.body.empty()) return json::value(nullptr);
  return parse_json(head.body);
}

Result<std::string> resolve_in(const json::array& sandboxes, const std::string& reference) {
  struct Named {
    std::string id;
    int64_t depth;
  };
  std::vector<Named> named;
  std::vector<std::string> candidates;
  for (const json::value& s : sandboxes) {
    const std::string id = text_of(s.as_object().if_contains("id"));
    if (id == reference) return id;
    const json::value* labels = s.as_object().if_contains("labels");
    if (labels != nullptr && labels->is_object() && text_of(labels->get_object().if_contains("name")) == reference)
      named.push_back({id, s.at("depth").to_number<int64_t>()});
    if (id.starts_with(reference) || id.starts_with("sb-" + reference)) candidates.push_back(id);
  }
  // A fork inherits its parent's labels: the name means the one nearest to the template.
  std::stable_sort(named.begin(), named.end(), [](const Named& a, const Named& b) { return a.depth < b.depth; });
  if (named.size() == 1 || (named.size() > 1 && named[0].depth < named[1].depth)) return named[0].id;
  for (const Named& n : named) candidates.push_back(n.id);
  if (candidates.size() == 1) return candidates.front();
  if (candidates.empty())
    return tl::unexpected(
        Error(ErrorKind::kNotFound, "there is no sandbox `" + reference + "`").with_hint("`ramet ls` lists them."));
  std::string list;
  constexpr size_t kMaxShown = 6;
  for (size_t i = 0; i < candidates.size() && i < kMaxShown; i++) list += (i == 0 ? "" : ", ") + candidates[i];
  if (candidates.size() > kMaxShown) list += ", ...";
  return tl::unexpected(
      Error(ErrorKind::kConflict, "`" + reference + "` fits " + std::to_string(candidates.size()) + " sandboxes: " + list)
          .with_hint("Write more of the id."));
}

Result<std::string> ApiClient::resolve(const std::string& reference) const {
  if (reference.empty()) return fail(ErrorKind::kInvalid, "the sandbox id is empty");
  TRY_ASSIGN(const json::value answer, call("GET", "/v1/sandboxes"));
  return resolve_in(answer.as_object().at("sandboxes").as_array(), reference);
}

}  // namespace ramet::cli
