#include "chunk/s3/client.h"

#include <time.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>

#include "chunk/digest.h"

namespace ramet::chunk::s3 {
namespace {

constexpr std::string_view kContentDigest = "sha256";  // as metadata of the object

std::string amz_date() {
  const time_t now = static_cast<time_t>(wall_ns() / 1'000'000'000);
  tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  ::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &utc);
  return text;
}

// "https://host:port" -> "host:port"
Result<std::string> host_of(const std::string& endpoint) {
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (!endpoint.starts_with(scheme)) continue;
    std::string host = endpoint.substr(scheme.size());
    if (!host.empty() && host.find_first_of("/?#@ \r\n") == std::string::npos) return host;
  }
  return fail(ErrorKind::kInvalid, "'" + endpoint + "' is no endpoint: http:// or https://, a host, perhaps a port");
}

bool may_help_to_try_again(const Result<HttpAnswer>& answer) {
  if (answer) return is_transient(answer->status);
  return answer.error().kind() == ErrorKind::kUnavailable || answer.error().kind() == ErrorKind::kTimeout;
}

bool is_success(const HttpAnswer& answer) { return answer.status >= 200 && answer.status < 300; }

}  // namespace

Result<std::unique_ptr<Client>> Client::create(Place place, Options options) {
  TRY_ASSIGN(std::string host, host_of(place.endpoint));
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  if (place.bucket.empty() || place.bucket.find_first_not_of(kAllowed) != std::string::npos)
    return fail(ErrorKind::kInvalid, "'" + place.bucket + "' is no name of a bucket");
  return std::unique_ptr<Client>(new Client(std::move(place), std::move(host), options));
}

Client::Call Client::call(std::string method, const std::string& key) const {
  Call call;
  call.request.method = std::move(method);
  call.request.payload_sha256 = sha256({}).to_hex();
  call.request.path = "/" + place_.bucket + (key.empty() ? "" : "/" + key);
  return call;
}

Result<HttpAnswer> Client::attempt(const Call& call) {
  Request request = call.request;
  request.headers["host"] = host_;
  request.headers["x-amz-date"] = amz_date();
  request.headers["x-amz-content-sha256"] = request.payload_sha256;
  if (!place_.credentials.session_token.empty()) request.headers["x-amz-security-token"] = place_.credentials.session_token;
  HttpRequest http{.method = request.method,
                   .url = place_.endpoint + uri_encode(request.path, Slashes::kKeep),
                   .headers = request.headers,
                   .body = call.body,
                   .max_answer_bytes = call.max_answer_bytes};
  if (!request.query.empty()) http.url += "?" + canonical_query(request);
  http.headers["authorization"] = authorization(request, place_.credentials, place_.region);
  return http_.exchange(http);
}

// With a part left out by chance, so that many clients do not come back together.
void Client::pause(int failures) const {
  thread_local std::minstd_rand random{std::random_device{}()};
  const Milliseconds longest = std::min(options_.longest_pause, options_.first_pause * (1 << std::min(failures - 1, 16)));
  std::this_thread::sleep_for(longest - Milliseconds(static_cast<int64_t>(random()) % (longest.count() / 2 + 1)));
}

Result<Client::Answered> Client::send(const Call& call) {
  for (int attempts = 1;; attempts++) {
    Result<HttpAnswer> answer = attempt(call);
    if (!may_help_to_try_again(answer) || attempts >= options_.attempts) {
      if (!answer) return tl::unexpected<Error>(std::move(answer).error());
      return Answered{*std::move(answer), attempts};
    }
    pause(attempts);
  }
}

Status Client::put(const std::string& key, std::span<const std::byte> bytes) {
  Call put = call("PUT", key);
  put.body = bytes;
  const std::string digest = put.request.payload_sha256 = sha256(bytes).to_hex();
  put.request.headers = {{"content-type", "application/octet-stream"}, {"x-amz-meta-" + std::string(kContentDigest), digest}};
  if (knows_conditional_writes_) {
    Status done = put_if_absent(put, key, digest);
    if (done || done.error().kind() != ErrorKind::kUnsupported) return done;
    knows_conditional_writes_ = false;
  }
  const Result<uint64_t> there = size_bytes(key);
  if (there) return fail(ErrorKind::kExists, "the object is there already");
  if (there.error().kind() != ErrorKind::kNotFound) return tl::unexpected<Error>(there.error());
  TRY_ASSIGN(const Answered done, send(put));
  if (is_success(done.answer)) return {};
  return tl::unexpected<Error>(error_of(done.answer.status, done.answer.body));
}

Status Client::put_if_absent(Call put, const std::string& key, const std::string& digest) {
  put.request.headers["if-none-match"] = "*";
  TRY_ASSIGN(const Answered done, send(put));
  if (is_success(done.answer)) return {};
  Error error = error_of(done.answer.status, done.answer.body);
  if (error.kind() != ErrorKind::kExists || done.attempts == 1) return tl::unexpected<Error>(std::move(error));
  // An earlier attempt may have succeeded, and only its answer was lost.
  TRY_ASSIGN(const Answered there, send(call("HEAD", key)));
  const auto found = there.answer.metadata.find(std::string(kContentDigest));
  if (is_success(there.answer) && found != there.answer.metadata.end() && found->second == digest) return {};
  return tl::unexpected<Error>(std::move(error));
}

Status Client::get_range(const std::string& key, uint64_t offset, std::span<std::byte> out) {
  if (out.empty()) return {};
  Call get = call("GET", key);
  get.request.headers["range"] = "bytes=" + std::to_string(offset) + "-" + std::to_string(offset + out.size() - 1);
  get.max_answer_bytes = std::max(out.size(), kMaxErrorBytes);
  TRY_ASSIGN(const Answered got, send(get));
  if (!is_success(got.answer)) return tl::unexpected<Error>(error_of(got.answer.status, got.answer.body));
  if (got.answer.status != 206)
    return fail(ErrorKind::kIo, "the server answered " + std::to_string(got.answer.status) + " to a request for a range");
  if (got.answer.body.size() != out.size())
    return fail(ErrorKind::kCorrupt, "the server gave " + std::to_string(got.answer.body.size()) + " bytes of " +
                                         std::to_string(out.size()) + " at offset " + std::to_string(offset));
  std::ranges::copy(got.answer.body, out.begin());
  return {};
}

Result<uint64_t> Client::size_bytes(const std::string& key) {
  TRY_ASSIGN(const Answered head, send(call("HEAD", key)));
  if (!is_success(head.answer)) return tl::unexpected<Error>(error_of(head.answer.status, {}));
  if (!head.answer.content_length) return fail(ErrorKind::kIo, "the server does not say how long an object is");
  return *head.answer.content_length;
}

Status Client::remove(const std::string& key) {
  TRY_ASSIGN(const Answered removed, send(call("DELETE", key)));
  if (is_success(removed.answer)) return {};
  Error error = error_of(removed.answer.status, removed.answer.body);
  if (error.kind() == ErrorKind::kNotFound) return {};
  return tl::unexpected<Error>(std::move(error));
}

Result<ListedObjects> Client::list(const std::string& prefix, const std::string& continuation, size_t max_keys) {
  Call list = call("GET", "");
  list.request.query = {{"list-type", "2"}, {"max-keys", std::to_string(max_keys)}, {"prefix", prefix}};
  if (!continuation.empty()) list.request.query["continuation-token"] = continuation;
  list.max_answer_bytes = kMaxListBytes;
  TRY_ASSIGN(const Answered listed, send(list));
  if (!is_success(listed.answer)) return tl::unexpected<Error>(error_of(listed.answer.status, listed.answer.body));
  return parse_list(listed.answer.body);
}

}  // namespace ramet::chunk::s3
