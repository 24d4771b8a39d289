#include "chunk/s3/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/file.h"

namespace ramet::chunk::s3 {
namespace {

constexpr size_t kMaxIdleConnections = 16;
constexpr size_t kMaxMetadata = 32;
constexpr std::string_view kMetadata = "x-amz-meta-", kContentLength = "content-length";

struct FreeList {
  void operator()(curl_slist* list) const { ::curl_slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, FreeList>;

struct Receiver {
  HttpAnswer answer;
  size_t max_bytes = 0;
  bool too_long = false;
};

// libcurl's callbacks. The body's buffer has its full size reserved before, so that nothing is thrown through C.
size_t on_body(char* data, size_t, size_t bytes, void* user) {
  Receiver& to = *static_cast<Receiver*>(user);
  if (bytes > to.max_bytes - to.answer.body.size()) {
    to.too_long = true;
    return 0;
  }
  const std::span<const std::byte> piece = as_bytes({data, bytes});
  to.answer.body.insert(to.answer.body.end(), piece.begin(), piece.end());
  return bytes;
}

void note_header(HttpAnswer& answer, std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  std::string name(line.substr(0, colon));
  std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  std::string_view value = line.substr(colon + 1);
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!value.empty() && is_space(value.front())) value.remove_prefix(1);
  while (!value.empty() && is_space(value.back())) value.remove_suffix(1);
  if (name == kContentLength) {
    uint64_t length = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), length);
    if (error == std::errc() && end == value.data() + value.size()) answer.content_length = length;
  }
  if (name.starts_with(kMetadata) && answer.metadata.size() < kMaxMetadata)
    answer.metadata[name.substr(kMetadata.size())] = value;
}

size_t on_header(char* data, size_t, size_t bytes, void* user) {
  try {
    note_header(static_cast<Receiver*>(user)->answer, {data, bytes});
  } catch (const std::bad_alloc&) {
    return 0;
  }
  return bytes;
}

HeaderList header_list(const HttpRequest& request) {
  HeaderList list;
  const auto add = [&](const std::string& line) {
    curl_slist* const longer = ::curl_slist_append(list.get(), line.c_str());
    if (!longer) return;
    static_cast<void>(list.release());
    list.reset(longer);
  };
  for (const auto& [name, value] : request.headers) add(name + ": " + value);
  add("Expect:");  // a pack is sent at once
  add("Accept:");
  return list;
}

void set_method(CURL* curl, const HttpRequest& request) {
  if (request.method == "HEAD") {
    ::curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    return;
  }
  ::curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (request.method != "PUT") return;
  ::curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.data());
  ::curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
}

Error error_of_curl(CURLcode code, const char* detail, const Receiver& receiver) {
  if (receiver.too_long)
    return Error(ErrorKind::kCorrupt, "the server's answer is longer than " + std::to_string(receiver.max_bytes) + " bytes");
  ErrorKind kind = ErrorKind::kUnavailable;
  if (code == CURLE_OPERATION_TIMEDOUT) kind = ErrorKind::kTimeout;
  if (code == CURLE_OUT_OF_MEMORY) kind = ErrorKind::kNoMemory;
  if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) kind = ErrorKind::kInvalid;
  return Error(kind, std::string("the S3 server: ") + (*detail ? detail : ::curl_easy_strerror(code)));
}

}  // namespace

HttpConnections::HttpConnections(Options options) : options_(std::move(options)) {
  [[maybe_unused]] static const CURLcode once = ::curl_global_init(CURL_GLOBAL_DEFAULT);
}

HttpConnections::~HttpConnections() {
  for (void* handle : idle_) ::curl_easy_cleanup(handle);
}

void* HttpConnections::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return ::curl_easy_init();
  void* const handle = idle_.back();
  idle_.pop_back();
  return handle;
}

void HttpConnections::give_back(void* handle) {
  ::curl_easy_reset(handle);  // options only: its connection stays
  {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kMaxIdleConnections) {
      idle_.push_back(handle);
      return;
    }
  }
  ::curl_easy_cleanup(handle);
}

Result<HttpAnswer> HttpConnections::exchange(const HttpRequest& request) {
  CURL* const curl = take();
  if (!curl) return fail(ErrorKind::kNoMemory, "no memory for a connection");
  Receiver receiver{.answer = {}, .max_bytes = request.max_answer_bytes};
  receiver.answer.body.reserve(receiver.max_bytes);
  const HeaderList headers = header_list(request);
  char detail[CURL_ERROR_SIZE] = "";
  set_method(curl, request);
  ::curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  ::curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);
  ::curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  ::curl_easy_setopt(curl, CURLOPT_PROXY, "");
  ::curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  ::curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
  ::curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_timeout.count()));
  ::curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(options_.timeout.count()));
  ::curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  ::curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(options_.stall_timeout.count() / 1000)));
  if (!options_.ca_file.empty()) ::curl_easy_setopt(curl, CURLOPT_CAINFO, options_.ca_file.c_str());
  ::curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &on_body);
  ::curl_easy_setopt(curl, CURLOPT_WRITEDATA, &receiver);
  ::curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &on_header);
  ::curl_easy_setopt(curl, CURLOPT_HEADERDATA, &receiver);
  const CURLcode code = ::curl_easy_perform(curl);
  long status = 0;
  ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  give_back(curl);
  if (code != CURLE_OK) return tl::unexpected<Error>(error_of_curl(code, detail, receiver));
  receiver.answer.status = static_cast<int>(status);
  return std::move(receiver.answer);
}

}  // namespace ramet::chunk::s3
