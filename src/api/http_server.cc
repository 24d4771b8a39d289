#include "api/http_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <charconv>

#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "api/error_table.h"
#include "api/fd_stream.h"
#include "base/log.h"

namespace ramet::api {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;

constexpr uint32_t kMaxHeaderBytes = 16 * 1024;
constexpr size_t kReadBufferBytes = 64 * 1024;
// A body that the handler did not want is read up to here so that the connection can be used again.
constexpr size_t kMaxDrainBytes = 256 * 1024;

std::string new_request_id() {
  std::array<unsigned char, 8> bytes;
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) bytes.fill(0);
  std::string id = "req_";
  for (const unsigned char b : bytes) {
    constexpr std::string_view kHex = "0123456789abcdef";
    id += kHex[b >> 4];
    id += kHex[b & 15];
  }
  return id;
}

Error client_error(const error_code& ec, std::string_view what) {
  if (ec == boost::asio::error::timed_out)
    return Error(ErrorKind::kTimeout, std::string(what) + ": the client was silent for too long");
  if (ec == boost::asio::error::operation_aborted)
    return Error(ErrorKind::kCancelled, std::string(what) + ": the daemon is stopping");
  if (ec == boost::asio::error::eof || ec == http::error::partial_message || ec == http::error::end_of_stream ||
      ec.category() == boost::system::system_category())
    return Error(ErrorKind::kCancelled, std::string(what) + ": the client went away");
  return Error(ErrorKind::kInvalid, std::string(what) + ": " + ec.message());
}

void signal_eventfd(int fd) {
  const uint64_t one = 1;
  (void)!::write(fd, &one, sizeof one);
}

constexpr std::string_view kDescriptorHint =
    "Close connections that are not needed, or start rametd with a higher limit of open files (`ulimit -n`, LimitNOFILE=).";

UniqueFd open_spare() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

UniqueFd accept_from(int listener) { return UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)); }

// Of a connection that gets no thread: 503, without waiting for its request.
void refuse(int fd, std::string_view why, std::string_view hint) {
  const std::string id = new_request_id();
  const std::string body = error_body(row_of_code("too_many_connections"), why, hint, id);
  const std::string answer = "HTTP/1.1 503 Service Unavailable\r\nServer: ramet\r\nRamet-Request-Id: " + id +
                             "\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: " +
                             std::to_string(body.size()) + "\r\n\r\n" + body;
  (void)!::send(fd, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::shutdown(fd, SHUT_WR);
  log_warn("connection refused: " + std::string(why));
}

Response error_response(const ErrorRow& row, std::string_view message, std::string_view request_id) {
  return {row.status, "application/json", error_body(row, message, "", request_id), {}};
}

}  // namespace

// One accepted socket and its thread; is also the Exchange of the request being served.
class HttpServer::Connection final : public Exchange {
 public:
  Connection(HttpServer& server, UniqueFd fd, const HostGuard& guard)
      : server_(server),
        fd_(std::move(fd)),
        guard_(guard),
        stream_(fd_.get(), server.draining_fd_.get()),
        buffer_(kReadBufferBytes) {}

  void start() {
    thread_ = std::thread([this] {
      serve();
      ::shutdown(fd_.get(), SHUT_RDWR);
      finished_ = true;
      signal_eventfd(server_.finished_fd_.get());
    });
  }
  bool finished() const { return finished_; }
  void join() { thread_.join(); }

  std::string_view method() const override { return method_; }
  std::string_view target() const override { return target_; }
  std::string_view request_id() const override { return request_id_; }
  std::optional<std::string> header(std::string_view name) const override {
    const auto it = parser_->get().find(boost::beast::string_view(name.data(), name.size()));
    if (it == parser_->get().end()) return std::nullopt;
    return std::string(it->value());
  }
  bool has_body() const override { return parser_->chunked() || parser_->content_length().value_or(0) > 0; }
  void set_body_timeout(std::optional<Milliseconds> idle) override { stream_.set_idle_timeout(idle); }
  bool answered() const override { return status_ != 0; }
  bool stopping() const override { return server_.stopping_; }
  int client_fd() const override { return fd_.get(); }

  Result<size_t> read_body(std::span<std::byte> into) override;
  Status respond(const Response& response) override;
  Status begin_stream(const Response& head) override;
  Status write(std::span<const std::byte> bytes) override;
  Status end_stream() override;
  bool client_gone() override;

 private:
  using Parser = http::request_parser<http::buffer_body>;

  void serve();
  bool read_head();  // false: the connection ends
  void serve_request();
  void drain_body();
  void log(MonotonicClock::time_point begin);
  http::response_header<> make_head(const Response& response);
  Status check(const error_code& ec, std::string_view what);

  HttpServer& server_;
  const UniqueFd fd_;
  const HostGuard guard_;
  FdStream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::string method_, target_, request_id_;
  bool continue_pending_ = false;
  bool keep_alive_ = false;
  bool gone_ = false;
  bool stream_open_ = false;
  bool chunked_ = false;
  int status_ = 0;
  uint64_t bytes_in_ = 0, bytes_out_ = 0;
  std::atomic<bool> finished_ = false;
  std::thread thread_;
};

void HttpServer::Connection::serve() {
  do {
    if (!read_head()) return;
    serve_request();
  } while (keep_alive_ && !gone_ && !server_.stopping_);
}

bool HttpServer::Connection::read_head() {
  parser_.emplace();
  parser_->header_limit(kMaxHeaderBytes);
  parser_->body_limit(boost::none);
  request_id_ = new_request_id();
  method_ = target_ = "";
  status_ = 0;
  bytes_in_ = bytes_out_ = 0;
  stream_open_ = chunked_ = false;
  keep_alive_ = false;

  stream_.set_wake_fd(server_.draining_fd_.get());
  stream_.set_deadline(std::nullopt);
  stream_.set_idle_timeout(server_.options_.idle_timeout);
  if (buffer_.size() == 0 && stream_.wait(POLLIN)) return false;
  stream_.set_wake_fd(server_.stop_fd_.get());
  stream_.set_deadline(deadline_after(server_.options_.header_timeout));

  error_code ec;
  http::read_header(stream_, buffer_, *parser_, ec);
  stream_.set_deadline(std::nullopt);
  if (!ec) return true;
  const bool silent = ec == boost::asio::error::timed_out;
  if (!silent && (ec == http::error::end_of_stream || ec.category() == boost::system::system_category())) return false;
  stream_.set_idle_timeout(server_.options_.write_timeout);
  const bool too_big = ec == http::error::header_limit || ec == http::error::buffer_overflow;
  const ErrorRow& row = row_of_code(silent ? "timeout" : "invalid");
  (void)respond(error_response(
      row, too_big ? "the request's header is longer than 16384 bytes" : "the request cannot be read: " + ec.message(),
      request_id_));
  log(MonotonicClock::now());
  return false;
}

void HttpServer::Connection::serve_request() {
  const MonotonicClock::time_point begin = MonotonicClock::now();
  const http::request_header<>& head = parser_->get();
  method_ = std::string(head.method_string());
  target_ = std::string(head.target());
  keep_alive_ = parser_->keep_alive();
  continue_pending_ = boost::beast::iequals(head[http::field::expect], "100-continue");
  stream_.set_idle_timeout(server_.options_.body_timeout);

  const std::string host(head[http::field::host]), origin(head[http::field::origin]);
  if (guard_ && !guard_(host, origin)) {
    keep_alive_ = false;
    (void)respond(error_response(
        row_of_code("forbidden_origin"),
        "Host `" + host + "`" + (origin.empty() ? "" : " with Origin `" + origin + "`") + " is not this daemon", request_id_));
  } else {
    server_.handler_(*this);
    if (!answered()) (void)respond(error_response(row_of_code("internal"), "no handler answered", request_id_));
    if (stream_open_) gone_ = true;  // a stream without end(): the client must see it cut
  }
  if (keep_alive_ && !gone_) drain_body();
  log(begin);
}

void HttpServer::Connection::drain_body() {
  if (parser_->is_done()) return;
  if (continue_pending_) {  // the client was never told to send it
    keep_alive_ = false;
    return;
  }
  std::array<std::byte, 16 * 1024> scrap;
  size_t total = 0;
  stream_.set_idle_timeout(Milliseconds(1000));
  while (total < kMaxDrainBytes) {
    const Result<size_t> n = read_body(scrap);
    if (!n || *n == 0) {
      keep_alive_ = keep_alive_ && n.has_value();
      return;
    }
    total += *n;
  }
  keep_alive_ = false;
}

void HttpServer::Connection::log(MonotonicClock::time_point begin) {
  const std::chrono::duration<double, std::milli> took = MonotonicClock::now() - begin;
  if (server_.access_log_)
    server_.access_log_({request_id_, method_, target_, status_, took.count(), bytes_in_, bytes_out_, gone_});
}

Status HttpServer::Connection::check(const error_code& ec, std::string_view what) {
  if (!ec) return {};
  gone_ = true;
  return tl::unexpected(client_error(ec, what));
}

Result<size_t> HttpServer::Connection::read_body(std::span<std::byte> into) {
  if (parser_->is_done() || into.empty()) return 0;
  error_code ec;
  if (continue_pending_) {
    continue_pending_ = false;
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    boost::asio::write(stream_, boost::asio::buffer(kContinue), ec);
    TRY(check(ec, "reading the body"));
  }
  http::buffer_body::value_type& body = parser_->get().body();
  body.data = into.data();
  body.size = into.size();
  body.more = true;
  buffer_.reserve(kReadBufferBytes);  // Beast reads what fits: 512 bytes at a time if it may choose
  while (body.size == into.size() && !parser_->is_done()) {
    http::read_some(stream_, buffer_, *parser_, ec);
    if (ec == http::error::need_buffer) ec = {};
    TRY(check(ec, "reading the body"));
  }
  const size_t n = into.size() - body.size;
  bytes_in_ += n;
  return n;
}

http::response_header<> HttpServer::Connection::make_head(const Response& response) {
  http::response_header<> head;
  head.version(parser_->get().version() == 10 ? 10 : 11);
  head.result(static_cast<unsigned>(response.status));
  head.set(http::field::server, "ramet");
  head.set("Ramet-Request-Id", request_id_);
  if (!response.content_type.empty()) head.set(http::field::content_type, response.content_type);
  for (const Header& h : response.headers) head.set(h.name, h.value);
  return head;
}

Status HttpServer::Connection::respond(const Response& response) {
  http::response<http::string_body> message(make_head(response), response.body);
  if (server_.stopping_) keep_alive_ = false;
  message.keep_alive(keep_alive_);
  if (response.status != 204) message.content_length(response.body.size());
  status_ = response.status;
  bytes_out_ += response.body.size();
  stream_.set_idle_timeout(server_.options_.write_timeout);
  error_code ec;
  http::write(stream_, message, ec);
  return check(ec, "writing the answer");
}

Status HttpServer::Connection::begin_stream(const Response& head) {
  http::response<http::empty_body> message(make_head(head));
  chunked_ = parser_->get().version() >= 11;
  keep_alive_ = keep_alive_ && chunked_;
  message.keep_alive(keep_alive_);
  message.chunked(chunked_);
  status_ = head.status;
  stream_open_ = true;
  stream_.set_idle_timeout(std::nullopt);
  error_code ec;
  http::response_serializer<http::empty_body> serializer(message);
  http::write_header(stream_, serializer, ec);
  return check(ec, "writing the answer");
}

Status HttpServer::Connection::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};  // an empty chunk would end the stream
  bytes_out_ += bytes.size();
  error_code ec;
  const boost::asio::const_buffer buffer(bytes.data(), bytes.size());
  if (chunked_)
    boost::asio::write(stream_, http::make_chunk(buffer), ec);
  else
    boost::asio::write(stream_, buffer, ec);
  return check(ec, "writing the answer");
}

Status HttpServer::Connection::end_stream() {
  stream_open_ = false;
  if (!chunked_) return {};
  error_code ec;
  boost::asio::write(stream_, http::make_chunk_last(), ec);
  return check(ec, "writing the answer");
}

bool HttpServer::Connection::client_gone() {
  if (gone_) return true;
  pollfd p{fd_.get(), POLLRDHUP, 0};
  if (::poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) gone_ = true;
  return gone_;
}

HttpServer::HttpServer(HttpOptions options, Handler handler, AccessLog access_log)
    : options_(options), handler_(std::move(handler)), access_log_(std::move(access_log)) {}

HttpServer::~HttpServer() { stop(); }

void HttpServer::add_listener(UniqueFd listener, HostGuard guard) {
  listeners_.push_back({std::move(listener), std::move(guard)});
}

Status HttpServer::start() {
  draining_fd_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  stop_fd_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  finished_fd_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!draining_fd_ || !stop_fd_ || !finished_fd_) return fail_errno("eventfd");
  spare_fd_ = open_spare();
  if (!spare_fd_) return fail_errno("open /dev/null");
  acceptor_ = std::thread([this] { accept_loop(); });
  return {};
}

void HttpServer::stop() {
  if (!acceptor_.joinable()) return;
  stopping_ = true;
  signal_eventfd(draining_fd_.get());
  acceptor_.join();
  const Deadline grace = deadline_after(options_.stop_grace);
  while (true) {
    reap_finished();
    {
      const std::lock_guard lock(mutex_);
      if (connections_.empty()) break;
    }
    if (time_left(grace).count() == 0) {
      signal_eventfd(stop_fd_.get());
      break;
    }
    pollfd p{finished_fd_.get(), POLLIN, 0};
    ::poll(&p, 1, static_cast<int>(time_left(grace).count()));
  }
  for (const std::unique_ptr<Connection>& c : connections_) c->join();
  connections_.clear();
  listeners_.clear();
}

void HttpServer::accept_loop() {
  std::vector<pollfd> fds;
  for (const Listener& l : listeners_) fds.push_back({l.fd.get(), POLLIN, 0});
  fds.push_back({finished_fd_.get(), POLLIN, 0});
  fds.push_back({draining_fd_.get(), POLLIN, 0});
  while (!stopping_) {
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) {
      log_error("accept: poll failed, no new connections from now on");
      return;
    }
    reap_finished();
    for (size_t i = 0; i < listeners_.size() && !stopping_; i++)
      if (fds[i].revents != 0) accept_one(listeners_[i]);
  }
}

void HttpServer::accept_one(const Listener& listener) {
  UniqueFd fd = accept_from(listener.fd.get());
  if (!fd && (errno == EMFILE || errno == ENFILE)) return refuse_one(listener);
  if (!fd) return;
  const std::lock_guard lock(mutex_);
  if (connections_.size() >= options_.max_connections)
    return refuse(fd.get(), "all " + std::to_string(options_.max_connections) + " connections of this daemon are in use", "");
  connections_.push_back(std::make_unique<Connection>(*this, std::move(fd), listener.guard));
  connections_.back()->start();
}

void HttpServer::refuse_one(const Listener& listener) {
  spare_fd_.reset();
  UniqueFd fd = accept_from(listener.fd.get());
  if (fd) refuse(fd.get(), "this daemon has no file descriptor left for another connection", kDescriptorHint);
  const bool refused = static_cast<bool>(fd);
  fd.reset();
  spare_fd_ = open_spare();
  if (refused && spare_fd_) return;
  log_error("accept: no file descriptor left");
  ::poll(nullptr, 0, 100);  // another thread took it, and the connection stays in the backlog: do not spin on it
}

void HttpServer::reap_finished() {
  uint64_t count = 0;
  (void)!::read(finished_fd_.get(), &count, sizeof count);
  std::list<std::unique_ptr<Connection>> finished;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto here = it++;
      if ((*here)->finished()) finished.splice(finished.end(), connections_, here);
    }
  }
  for (const std::unique_ptr<Connection>& c : finished) c->join();
}

}  // namespace ramet::api
