#include "connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <optional>

namespace ramet::guest {
namespace {

// One buffer for all connections: a read never outlives the call that made it.
std::array<char, abi::kChunkBytes> read_buffer;

bool is_reset(int err) { return err == ECONNRESET || err == ENODEV || err == ENETDOWN || err == ENOTCONN; }

}  // namespace

Connection::Connection(Reactor& reactor, UniqueFd fd, Callbacks callbacks)
    : callbacks_(std::move(callbacks)), fd_(std::move(fd)) {
  watch_ = reactor.watch(fd_.get(), EPOLLIN, [this](uint32_t events) { on_events(events); });
}

void Connection::send(const abi::Event& event) {
  if (closed_ || finishing_) return;
  if (!abi::append_frame(event, out_)) return close(false);  // ours to prevent: no event we build is that long
  flush();
}

void Connection::set_reading(bool on) {
  if (reading_ == on || closed_) return;
  reading_ = on;
  update_watch();
  if (on) hand_out_frames();
}

void Connection::finish() {
  if (closed_ || finishing_) return;
  finishing_ = true;
  reading_ = false;
  flush();
}

void Connection::abandon() {
  closed_ = true;
  watch_.reset();  // before the close: epoll would keep watching a file that a worker still has open
  fd_.reset();
}

void Connection::on_events(uint32_t events) {
  if (events & EPOLLOUT) {
    flush();
    if (!closed_ && backlog() == 0 && callbacks_.on_drained) callbacks_.on_drained();
  }
  if (closed_) return;
  if (reading_ && (events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return read_some();
  if (events & (EPOLLHUP | EPOLLERR)) close(false);
}

void Connection::read_some() {
  const ssize_t n = ::recv(fd_.get(), read_buffer.data(), read_buffer.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n < 0) return close(is_reset(errno));
  if (n == 0) return close(false);
  in_.feed(read_buffer.data(), static_cast<size_t>(n));
  hand_out_frames();
}

void Connection::hand_out_frames() {
  if (handing_out_) return;  // a callback paused and resumed reading: the outer loop goes on
  handing_out_ = true;
  while (reading_ && !closed_) {
    const std::optional<std::string_view> message = in_.next();
    if (!message) break;
    callbacks_.on_frame(*message);
  }
  handing_out_ = false;
  if (!closed_ && in_.too_long()) close(false);
}

void Connection::flush() {
  while (backlog() > 0) {
    const ssize_t n = ::send(fd_.get(), out_.data() + sent_, backlog(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n < 0) return close(is_reset(errno));
    sent_ += static_cast<size_t>(n);
  }
  if (backlog() == 0) {
    out_.clear();
    sent_ = 0;
    if (out_.capacity() > 4 * abi::kChunkBytes) out_.shrink_to_fit();
    if (finishing_) return close(false);
  } else if (sent_ > abi::kChunkBytes) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
  update_watch();
}

void Connection::update_watch() { watch_.set_events((reading_ ? EPOLLIN : 0u) | (backlog() > 0 ? EPOLLOUT : 0u)); }

void Connection::close(bool reset) {
  if (closed_) return;
  closed_ = true;
  watch_.reset();
  fd_.reset();
  if (reset && callbacks_.on_reset) callbacks_.on_reset();
  callbacks_.on_closed();
}

}  // namespace ramet::guest
