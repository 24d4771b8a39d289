#include "host/images/chunk_server.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"
#include "base/log.h"
#include "base/socket.h"

namespace ramet::host {
namespace {

// What epoll says of descriptors that are no connection.
constexpr uint64_t kStopId = ~uint64_t{0}, kListenerId = kStopId - 1, kMoreWorkId = kStopId - 2, kAcceptTimerId = kStopId - 3;
// Between two tries to accept while that fails.
constexpr itimerspec kAcceptPause = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = 100'000'000}};
// Chunks that one reader is asked for when the cache is full of what readers hold.
constexpr size_t kAskedBackAtOnce = 16;

Status watch(int epoll, int operation, int fd, uint64_t id, uint32_t events) {
  epoll_event e{};
  e.events = events;
  e.data.u64 = id;
  if (::epoll_ctl(epoll, operation, fd, &e) < 0) return fail_errno("watch a socket");
  return {};
}

}  // namespace

Result<std::unique_ptr<ChunkServer>> ChunkServer::start(DiskReader& reader, Options options) {
  std::unique_ptr<ChunkServer> server(new ChunkServer(reader, std::move(options)));
  TRY(server->begin());
  return server;
}

Status ChunkServer::begin() {
  reader_.when_cache_is_leased(this, [this] { ask_back(); });
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return fail_errno("create epoll");
  stop_event_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!stop_event_) return fail_errno("create eventfd");
  TRY(watch(epoll_.get(), EPOLL_CTL_ADD, stop_event_.get(), kStopId, EPOLLIN));
  more_work_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
  if (!more_work_) return fail_errno("create eventfd");
  TRY(watch(epoll_.get(), EPOLL_CTL_ADD, more_work_.get(), kMoreWorkId, EPOLLIN));
  for (size_t i = 0; i < options_.workers + 1; i++) {
    threads_.emplace_back([this] { serve(); });
    ::pthread_setname_np(threads_.back().native_handle(), "chunk-work");
  }
  return {};
}

ChunkServer::~ChunkServer() {
  reader_.when_cache_is_leased(this, {});
  if (stop_event_) ::eventfd_write(stop_event_.get(), 1);
  for (std::thread& t : threads_) t.join();
  for (const ConnectionPtr& c : all()) c->end();
}

Result<UniqueFd> ChunkServer::attach(std::shared_ptr<OpenImage> image) {
  TRY_ASSIGN(SocketPair pair, make_socket_pair(SOCK_SEQPACKET));
  TRY(add(std::move(pair.a), std::move(image)));
  return std::move(pair.b);
}

Status ChunkServer::listen(const std::string& path) {
  accept_timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!accept_timer_) return fail_errno("create timerfd");
  TRY(watch(epoll_.get(), EPOLL_CTL_ADD, accept_timer_.get(), kAcceptTimerId, EPOLLIN));
  TRY_ASSIGN(listener_, listen_unix(path, SOCK_SEQPACKET, 64));
  return watch(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), kListenerId, EPOLLIN | EPOLLONESHOT);
}

Status ChunkServer::add(UniqueFd socket, std::shared_ptr<OpenImage> bound) {
  const std::lock_guard lock(mutex_);
  const auto connection = std::make_shared<ChunkConnection>(next_id_++, std::move(socket), std::move(bound));
  TRY(watch(epoll_.get(), EPOLL_CTL_ADD, connection->socket(), connection->id(), EPOLLIN | EPOLLONESHOT));
  connections_.emplace(connection->id(), Entry{connection});
  return {};
}

void ChunkServer::serve() {
  while (hear()) work_off();
}

// One event, for one thread. False: stop.
bool ChunkServer::hear() {
  epoll_event e;
  if (::epoll_wait(epoll_.get(), &e, 1, -1) < 1) return true;
  if (e.data.u64 == kStopId) return false;
  eventfd_t count;
  if (e.data.u64 == kMoreWorkId)
    static_cast<void>(::eventfd_read(more_work_.get(), &count));
  else if (e.data.u64 == kListenerId)
    accept_one();
  else if (e.data.u64 == kAcceptTimerId)
    accept_again();
  else
    on_event(e.data.u64, e.events);
  return true;
}

void ChunkServer::accept_one() {
  Result<UniqueFd> socket = accept_unix(listener_.get(), MonotonicClock::now());
  if (!socket && socket.error().kind() != ErrorKind::kTimeout) return accept_later(socket.error());
  watch_listener();
  if (!socket) return;
  accepts_later_ = false;
  size_t named = 0;
  for (const ConnectionPtr& c : all()) named += c->bound() == nullptr;
  if (named >= options_.max_named) {
    log_warn("chunk socket: " + std::to_string(named) + " clients, one more is refused");
    return;
  }
  if (const Status added = add(std::move(*socket), nullptr); !added) log_warn("chunk socket: " + added.error().to_string());
}

// Whoever could not be accepted is heard of at once again, and all threads would turn in a circle.
void ChunkServer::accept_later(const Error& why) {
  if (!accepts_later_.exchange(true)) log_warn("chunk socket: new readers wait: " + why.to_string());
  ::timerfd_settime(accept_timer_.get(), 0, &kAcceptPause, nullptr);
}

void ChunkServer::accept_again() {
  uint64_t times;
  if (::read(accept_timer_.get(), &times, sizeof times) == sizeof times) watch_listener();  // else another thread was faster
}

void ChunkServer::watch_listener() {
  (void)watch(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), kListenerId, EPOLLIN | EPOLLONESHOT).has_value();
}

void ChunkServer::on_event(uint64_t id, uint32_t events) {
  const ConnectionPtr connection = take_event(id);
  if (!connection) return;
  if (events & EPOLLOUT) flush(connection);
  if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
  const Status received = connection->receive();
  if (!received) return end(connection, received.error());
  tend(connection);
}

void ChunkServer::work_off() {
  std::unique_lock lock(mutex_);
  while (may_work()) {
    const auto it = connections_.find(ready_.front());
    ready_.pop_front();
    if (it == connections_.end()) continue;
    const ConnectionPtr connection = it->second.connection;
    std::optional<ChunkConnection::Work> task = connection->take();
    it->second.ready = connection->has_work();
    if (it->second.ready) ready_.push_back(connection->id());  // behind all others
    if (!task) continue;
    working_++;
    if (may_work()) call_one_more();
    lock.unlock();
    work(connection, *std::move(task));
    lock.lock();
    working_--;
  }
}

// Of the threads that listen, to work.
void ChunkServer::call_one_more() { ::eventfd_write(more_work_.get(), 1); }

void ChunkServer::work(const ConnectionPtr& connection, ChunkConnection::Work work) {
  if (const image::Hello* hello = std::get_if<image::Hello>(&work.what)) {
    greet(connection, *hello);
  } else {
    const image::Ask& ask = std::get<image::Ask>(work.what);
    connection->answer(ask, reader_.read(*work.image, {ask.block, ask.count}, work.may_lend));
  }
  flush(connection);
}

void ChunkServer::greet(const ConnectionPtr& connection, const image::Hello& hello) {
  const Result<std::shared_ptr<OpenImage>> disk = disk_of(*connection, hello);
  if (!disk) {
    connection->refuse(disk.error());
    if (!connection->flush()) log_debug("chunk socket: a refused reader is gone already");
    return end(connection, disk.error());
  }
  std::vector<ChunkConnection::Held> held;
  for (const uint64_t chunk : hello.held)
    if (std::optional<chunk::ChunkCache::Lease> lease = reader_.lease(**disk, chunk))
      held.push_back({chunk, *std::move(lease)});
  connection->greet(*disk, std::move(held));
}

Result<std::shared_ptr<OpenImage>> ChunkServer::disk_of(const ChunkConnection& connection, const image::Hello& hello) {
  std::shared_ptr<OpenImage> disk = connection.bound();
  if (disk && !hello.disk.empty())
    return fail(ErrorKind::kPermission, "a reader that is bound to its disk asked for '" + hello.disk + "'");
  if (!disk) {
    TRY_ASSIGN(disk, options_.find(hello.disk));
  }
  if (disk->root().kind != image::ImageKind::kDisk)
    return fail(ErrorKind::kInvalid, "image '" + disk->id().name + "' is not of a disk");
  return disk;
}

void ChunkServer::flush(const ConnectionPtr& connection) {
  if (const Status flushed = connection->flush(); !flushed) return end(connection, flushed.error());
  tend(connection);
}

// What the connection waits for now: its turn, or its reader. A thread of ours looks for work itself next; others call one.
void ChunkServer::tend(const ConnectionPtr& connection) {
  const std::lock_guard lock(mutex_);
  const auto it = connections_.find(connection->id());
  if (it == connections_.end()) return;
  Entry& entry = it->second;
  if (const bool unsent = connection->has_unsent(); !entry.watched || unsent != entry.waits_to_send) {
    entry.waits_to_send = unsent;
    entry.watched = true;
    const uint32_t events = unsent ? EPOLLIN | EPOLLOUT : EPOLLIN;
    (void)watch(epoll_.get(), EPOLL_CTL_MOD, connection->socket(), connection->id(), events | EPOLLONESHOT).has_value();
  }
  if (entry.ready || !connection->has_work()) return;
  entry.ready = true;
  ready_.push_back(connection->id());
}

void ChunkServer::end(const ConnectionPtr& connection, const Error& why) {
  {
    const std::lock_guard lock(mutex_);
    if (connections_.erase(connection->id()) == 0) return;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->socket(), nullptr);
  }
  if (why.kind() != ErrorKind::kUnavailable) log_warn("chunk socket: " + why.to_string());
  connection->end();
}

void ChunkServer::ask_back() {
  for (const ConnectionPtr& c : all()) {
    c->ask_back(kAskedBackAtOnce);
    flush(c);
  }
  call_one_more();  // who could be sent all that waited may have asked more
}

ChunkServer::Usage ChunkServer::usage() const {
  Usage usage;
  for (const ConnectionPtr& c : all()) {
    usage.connections++;
    usage.held_chunks += c->held();
  }
  return usage;
}

// Null: it has ended.
ChunkServer::ConnectionPtr ChunkServer::take_event(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto it = connections_.find(id);
  if (it == connections_.end()) return nullptr;
  it->second.watched = false;
  return it->second.connection;
}

std::vector<ChunkServer::ConnectionPtr> ChunkServer::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<ConnectionPtr> out;
  for (const auto& [id, entry] : connections_) out.push_back(entry.connection);
  return out;
}

}  // namespace ramet::host
