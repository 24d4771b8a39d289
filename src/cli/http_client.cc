#include "cli/http_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <charconv>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "base/socket.h"

namespace ramet::cli {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr std::string_view kUnixScheme = "unix://";
constexpr std::string_view kHttpScheme = "http://";

Result<UniqueFd> connect_tcp(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int rc = ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list); rc != 0)
    return fail(ErrorKind::kUnavailable, "cannot resolve `" + endpoint.host + "`: " + ::gai_strerror(rc));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(list, ::freeaddrinfo);
  int last_errno = ECONNREFUSED;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    UniqueFd fd(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) continue;
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (::connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0) return fd;
    last_errno = errno;
  }
  return fail_errno("no answer at " + endpoint.url(), last_errno);
}

Error stream_error(const error_code& ec) {
  if (ec.category() == boost::system::system_category() || ec == asio::error::eof || ec == http::error::end_of_stream ||
      ec == http::error::partial_message)
    return Error(ErrorKind::kUnavailable, "the server closed the connection: " + ec.message());
  return Error(ErrorKind::kCorrupt, "the answer cannot be read: " + ec.message());
}

Status check(const error_code& ec) {
  if (!ec) return {};
  return tl::unexpected(stream_error(ec));
}

}  // namespace

std::string Endpoint::url() const {
  if (!unix_path.empty()) return std::string(kUnixScheme) + unix_path;
  const bool v6 = host.find(':') != std::string::npos;
  return std::string(kHttpScheme) + (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Endpoint> parse_url(const std::string& url) {
  Endpoint out;
  if (url.starts_with(kUnixScheme) || url.starts_with('/')) {
    out.unix_path = url.starts_with('/') ? url : url.substr(kUnixScheme.size());
    if (out.unix_path.starts_with('/')) return out;
  }
  const Error broken(ErrorKind::kInvalid, "`" + url + "` is not a server; write unix:///PATH or http://HOST:PORT");
  if (!url.starts_with(kHttpScheme)) return tl::unexpected(broken);
  std::string rest = url.substr(kHttpScheme.size());
  while (rest.ends_with('/')) rest.pop_back();
  const size_t colon = rest.rfind(':');
  if (colon == std::string::npos || rest.find('/') != std::string::npos) return tl::unexpected(broken);
  const auto [end, ec] = std::from_chars(rest.data() + colon + 1, rest.data() + rest.size(), out.port);
  if (ec != std::errc() || end != rest.data() + rest.size() || out.port == 0 || colon == 0) return tl::unexpected(broken);
  out.host = rest.substr(0, colon);
  if (out.host.size() > 2 && out.host.front() == '[') out.host = out.host.substr(1, out.host.size() - 2);
  return out;
}

Result<UniqueFd> connect_to(const Endpoint& endpoint) {
  return endpoint.unix_path.empty() ? connect_tcp(endpoint) : connect_unix(endpoint.unix_path, SOCK_STREAM);
}

struct HttpStream::Impl {
  asio::io_context context;
  asio::generic::stream_protocol::socket socket{context};
  int fd = -1;                           // the socket's, for abort()
  Impl() { buffer.reserve(64 * 1024); }  // Beast reads what fits: 512 bytes at a time if it may choose
  boost::beast::flat_buffer buffer{256 * 1024};
  http::response_parser<http::buffer_body> parser;
};

HttpStream::HttpStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpStream::~HttpStream() = default;

Result<std::unique_ptr<HttpStream>> HttpStream::open(const Endpoint& endpoint, const HttpRequest& request, Body body,
                                                     std::string_view whole) {
  TRY_ASSIGN(UniqueFd fd, connect_to(endpoint));
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return fail_errno("getsockname");

  auto impl = std::make_unique<Impl>();
  error_code ec;
  impl->fd = fd.get();
  impl->socket.assign(asio::generic::stream_protocol(address.ss_family, 0), fd.release(), ec);
  TRY(check(ec));

  http::request<http::string_body> message;
  message.version(11);
  message.method_string(request.method);
  message.target(request.target);
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  message.set(http::field::host, !endpoint.unix_path.empty() ? "localhost" : v6 ? "[" + endpoint.host + "]" : endpoint.host);
  message.set(http::field::user_agent, "ramet-cli");
  for (const auto& [name, value] : request.headers) message.set(name, value);
  message.keep_alive(false);
  if (body == Body::kWhole) message.body() = std::string(whole);
  if (body == Body::kChunked)
    message.chunked(true);
  else if (body == Body::kWhole)
    message.content_length(whole.size());

  // An early refusal may come while we still send: its text is worth more than our EPIPE, so that is left to read_head.
  http::request_serializer<http::string_body> serializer(message);
  if (body == Body::kChunked)
    http::write_header(impl->socket, serializer, ec);
  else
    http::write(impl->socket, serializer, ec);
  if (ec != asio::error::broken_pipe && ec != asio::error::connection_reset) TRY(check(ec));
  impl->parser.body_limit(boost::none);
  return std::unique_ptr<HttpStream>(new HttpStream(std::move(impl)));
}

Status HttpStream::write(std::span<const std::byte> piece) {
  if (piece.empty()) return {};
  error_code ec;
  asio::write(impl_->socket, http::make_chunk(asio::const_buffer(piece.data(), piece.size())), ec);
  return check(ec);
}

Status HttpStream::finish_body() {
  error_code ec;
  asio::write(impl_->socket, http::make_chunk_last(), ec);
  return check(ec);
}

Result<HttpReply> HttpStream::read_head() {
  error_code ec;
  http::read_header(impl_->socket, impl_->buffer, impl_->parser, ec);
  TRY(check(ec));
  const http::response_header<>& head = impl_->parser.get();
  HttpReply reply;
  reply.status = static_cast<int>(head.result_int());
  reply.content_type = std::string(head[http::field::content_type]);
  reply.request_id = std::string(head["Ramet-Request-Id"]);
  return reply;
}

Result<size_t> HttpStream::read_some(std::span<std::byte> into) {
  http::buffer_body::value_type& body = impl_->parser.get().body();
  body.data = into.data();
  body.size = into.size();
  body.more = true;
  error_code ec;
  while (body.size == into.size() && !impl_->parser.is_done()) {
    http::read_some(impl_->socket, impl_->buffer, impl_->parser, ec);
    if (ec == http::error::need_buffer) ec = {};
    TRY(check(ec));
  }
  return into.size() - body.size;
}

Result<std::string> HttpStream::read_rest(size_t max_bytes) {
  std::string text;
  std::vector<std::byte> piece(64 * 1024);
  while (true) {
    TRY_ASSIGN(const size_t n, read_some(piece));
    if (n == 0) return text;
    text.append(reinterpret_cast<const char*>(piece.data()), n);
    if (text.size() > max_bytes)
      return fail(ErrorKind::kCorrupt, "the answer has more than " + std::to_string(max_bytes) + " bytes");
  }
}

void HttpStream::abort() { ::shutdown(impl_->fd, SHUT_RDWR); }

}  // namespace ramet::cli
