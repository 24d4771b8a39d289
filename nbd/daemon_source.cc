#include "daemon_source.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "base/file.h"
#include "base/socket.h"

namespace ramet::nbd {
namespace {

constexpr std::chrono::seconds kGreeting{10};
constexpr Milliseconds kRetry{100};
constexpr Milliseconds kRefusedRetry{1000};
// Between two looks at the socket: those who ask read it too, and must not be disturbed at every answer.
constexpr Milliseconds kLook{50};

Result<UniqueFd> connect_to_daemon(const std::string& path) { return connect_unix(path, SOCK_SEQPACKET); }

// Of the image, from a connection that is made for the question.
Result<image::Welcome> greeting_of(const DaemonSource::Where& where) {
  TRY_ASSIGN(const UniqueFd socket, connect_to_daemon(where.socket));
  const Deadline deadline = deadline_after(kGreeting);
  TRY(send_message(socket.get(), as_bytes(image::encode(image::ReaderMessage(image::Hello{.disk = where.image}))), {},
                   deadline));
  TRY_ASSIGN(const Received packet, receive_message(socket.get(), image::kMaxChunkMessageBytes, deadline));
  if (packet.eof) return fail(ErrorKind::kUnavailable, "the daemon hung up");
  TRY_ASSIGN(const image::DaemonMessage message, image::decode_daemon_message(as_bytes(packet.bytes)));
  if (const image::Failed* failed = std::get_if<image::Failed>(&message)) return fail(failed->kind, failed->message);
  if (const image::Welcome* welcome = std::get_if<image::Welcome>(&message)) return *welcome;
  return fail(ErrorKind::kCorrupt, "the daemon did not begin with a welcome");
}

}  // namespace

Result<std::unique_ptr<DaemonSource>> DaemonSource::open(const Where& where) {
  Result<image::Welcome> welcome = greeting_of(where);
  if (!welcome) return tl::unexpected(std::move(welcome).error().with_context("image " + where.image + " of " + where.socket));
  TRY_ASSIGN(UniqueFd socket, connect_to_daemon(where.socket));
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop) return fail_errno("eventfd");
  return std::unique_ptr<DaemonSource>(new DaemonSource(where, *welcome, std::move(socket), std::move(stop)));
}

DaemonSource::DaemonSource(const Where& where, const image::Welcome& welcome, UniqueFd socket, UniqueFd stop)
    : where_(where),
      welcome_(welcome),
      source_(welcome.blocks, std::move(socket), where.image, welcome.content),
      stop_(std::move(stop)),
      keeper_([this] { keep_connected(); }) {}

DaemonSource::~DaemonSource() {
  ::eventfd_write(stop_.get(), 1);
  keeper_.join();
}

image::BlockSource::Content DaemonSource::content_at(image::BlockRange range) const {
  range.count = std::min(range.count, image::kChunkBlocks - range.first % image::kChunkBlocks);
  const Content known = source_.content_at(range);
  if (known.zero) return known;
  // One block is enough to learn that its whole chunk is zero.
  std::array<std::byte, image::kBlockBytes> block;
  const iovec buffer{block.data(), block.size()};
  if (!source_.read({range.first, 1}, {&buffer, 1}, image::Wait::kAllowed)) return known;
  return source_.content_at(range);
}

void DaemonSource::keep_connected() {
  for (;;) {
    const Deadline lasting = deadline_after(kRefusedRetry);
    if (stopped_within(source_.socket(), Deadline::max())) return;
    const bool connected = source_.tend();
    // A daemon that refuses us ends each connection at once.
    if (stopped_within(-1, connected || MonotonicClock::now() > lasting ? deadline_after(kLook) : lasting)) return;
    if (!connected) reconnect();
  }
}

// Or until the other descriptor is readable.
bool DaemonSource::stopped_within(int fd, Deadline deadline) const {
  std::array<pollfd, 2> fds{pollfd{stop_.get(), POLLIN, 0}, {fd, POLLIN, 0}};
  const int timeout_ms = deadline == Deadline::max() ? -1 : static_cast<int>(time_left(deadline).count());
  while (::poll(fds.data(), fds.size(), timeout_ms) < 0 && errno == EINTR) {
  }
  return fds[0].revents != 0;
}

void DaemonSource::reconnect() {
  const Deadline give_up = deadline_after(where_.timeout);
  bool given_up = false;
  for (;;) {
    Result<UniqueFd> socket = connect_to_daemon(where_.socket);
    if (socket) return source_.attach(std::move(*socket));
    if (!given_up && MonotonicClock::now() >= give_up) {
      source_.give_up(Error(ErrorKind::kUnavailable, "the daemon at " + where_.socket + " is away"));
      given_up = true;
    }
    if (stopped_within(-1, deadline_after(kRetry))) return;
  }
}

}  // namespace ramet::nbd
