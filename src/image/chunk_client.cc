#include "image/chunk_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "base/log.h"

namespace ramet::image {
namespace {

constexpr int kMessagesPerTend = 64;  // so that a daemon that talks on and on does not keep the event loop

constexpr Milliseconds kTakenSoon{1};

tl::unexpected<Error> breach(const std::string& what) { return fail(ErrorKind::kCorrupt, "chunk socket: the daemon " + what); }

bool holds(BlockRange range, uint64_t block) { return block >= range.first && block < range.end(); }

std::string text(BlockRange range) { return std::to_string(range.first) + "+" + std::to_string(range.count); }

// 0: not an answer.
uint64_t id_of(const DaemonMessage& message) {
  return std::visit(
      [](const auto& m) {
        if constexpr (requires { m.id; }) return m.id;
        return uint64_t{0};
      },
      message);
}

}  // namespace

// ---- asking ----

Result<Answer> ChunkClient::ask(uint64_t block, uint32_t count) {
  Waiter waiter{.block = block, .count = count};
  Lock lock(mutex_);
  changed_.wait(lock, [this] { return open_.size() < kMaxOpenAsks; });
  const uint64_t id = next_id_++;
  open_[id] = &waiter;
  send_ask(lock, id, waiter);
  await_answer(lock, waiter);
  open_.erase(id);
  changed_.notify_all();
  return *std::move(waiter.answer);
}

void ChunkClient::send_ask(Lock& lock, uint64_t id, Waiter& waiter) {
  // Each open ask, this one included, may bring a descriptor.
  const size_t room = kMaxHeldChunks - open_.size();
  lock.unlock();  // closing a file may take a while
  const std::vector<uint64_t> closed = held_.trim(room);
  lock.lock();
  for (const uint64_t chunk : closed) say(Returned{chunk});
  say(Ask{id, waiter.block, waiter.count});
  waiter.asked = true;
}

void ChunkClient::await_answer(Lock& lock, Waiter& waiter) {
  while (!waiter.answer) {
    if (cancelled_)
      waiter.answer = fail(ErrorKind::kCancelled, "the disk is being closed");
    else if (broken_)
      waiter.answer = tl::unexpected(*broken_);
    else if (attached_ && !receiving_)
      receive(lock, Deadline::max());
    else
      changed_.wait(lock);
  }
}

void ChunkClient::say(const ReaderMessage& message) {
  if (!attached_) return;  // attach() says it all anew
  outbox_.push_back(encode(message));
  send_what_fits();
}

void ChunkClient::send_what_fits() {
  while (attached_ && !outbox_.empty()) {
    const Status sent = send_message(socket_.get(), as_bytes(outbox_.front()), {}, MonotonicClock::now());
    if (!sent && sent.error().kind() == ErrorKind::kTimeout) return;  // receive() waits for room as well
    if (!sent) return outbox_.clear();                                // receive() finds out more
    outbox_.pop_front();
  }
}

// ---- receiving ----

// One message, handled. False: none came by the deadline.   Requires: attached, and nobody receives.
bool ChunkClient::receive(Lock& lock, Deadline deadline) {
  receiving_ = true;
  const short events = outbox_.empty() ? POLLIN : POLLIN | POLLOUT;
  const int socket = socket_.get();
  lock.unlock();
  static_cast<void>(wait_for(socket, events, deadline));
  Result<Received> packet = receive_message(socket, kMaxChunkMessageBytes, MonotonicClock::now());
  const bool nothing = !packet && packet.error().kind() == ErrorKind::kTimeout;
  const bool gone = packet ? packet->eof : !nothing && packet.error().kind() != ErrorKind::kCorrupt;
  Status taken;
  if (packet && !packet->eof)
    taken = take(*std::move(packet));
  else if (!packet && !gone && !nothing)
    taken = tl::unexpected(packet.error());
  lock.lock();
  receiving_ = false;
  if (gone || !taken) lose_connection(taken ? nullptr : &taken.error());
  send_what_fits();
  changed_.notify_all();
  return !nothing;
}

void ChunkClient::lose_connection(const Error* broken) {
  if (!attached_) return;  // on purpose, or for another reason before
  attached_ = false;
  if (broken) broken_ = *broken;
  // Not closed: the event loop may still watch it.
  ::shutdown(socket_.get(), SHUT_RDWR);
  if (broken)
    log_error("reads of the base fail: " + broken->to_string());
  else
    log_warn("the daemon is gone: reads of the base wait for the next one");
}

Status ChunkClient::take(Received packet) {
  TRY_ASSIGN(const DaemonMessage message, decode_daemon_message(as_bytes(packet.bytes)));
  const size_t descriptors = std::holds_alternative<Chunk>(message) ? 1 : 0;
  if (packet.fds.size() != descriptors)
    return breach("sent a message with " + std::to_string(packet.fds.size()) + " descriptors, not " +
                  std::to_string(descriptors));
  if (const Failed* failed = std::get_if<Failed>(&message); failed && failed->id == 0)
    return fail(failed->kind, "chunk socket: the daemon refuses: " + failed->message);
  if (const Welcome* welcome = std::get_if<Welcome>(&message)) return take_welcome(*welcome);
  if (!welcomed_) return breach("did not begin with a welcome");
  if (const GiveBack* give_back = std::get_if<GiveBack>(&message)) return take_give_back(give_back->chunk);
  return take_answer(id_of(message), message, packet);
}

Status ChunkClient::take_welcome(const Welcome& welcome) {
  if (welcomed_) return breach("welcomes twice");
  if (welcome.blocks != blocks_)
    return breach("has a disk of " + std::to_string(welcome.blocks) + " blocks, this one has " + std::to_string(blocks_));
  if (content_ && *content_ != welcome.content) return breach("has another disk of this name");
  content_ = welcome.content;
  welcomed_ = true;
  return {};
}

Status ChunkClient::take_give_back(uint64_t chunk) {
  if (chunk >= held_.chunks() || !held_.remove(chunk)) return {};  // a Returned of it is under way
  const std::lock_guard lock(mutex_);
  say(Returned{chunk});
  return {};
}

Status ChunkClient::take_answer(uint64_t id, const DaemonMessage& message, Received& packet) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(id);
  if (found == open_.end() || !found->second->asked || found->second->answer)
    return breach("answers " + std::to_string(id) + ", which was not asked");
  Waiter& waiter = *found->second;
  if (const Failed* failed = std::get_if<Failed>(&message)) {
    waiter.answer = fail(failed->kind, "block " + std::to_string(waiter.block) + " of the base: " + failed->message);
    return {};
  }
  TRY_ASSIGN(waiter.answer, answer_of(waiter.block, message, packet));
  return {};
}

Result<Answer> ChunkClient::answer_of(uint64_t block, const DaemonMessage& message, Received& packet) {
  if (const Chunk* chunk = std::get_if<Chunk>(&message)) {
    if (chunk->chunk != block / kChunkBlocks)
      return breach("answers block " + std::to_string(block) + " with chunk " + std::to_string(chunk->chunk));
    if (!held_.add(chunk->chunk, std::move(packet.fds[0]))) say(Returned{chunk->chunk});
    return Answer{.kind = Answer::Kind::kChunk};
  }
  const Data* const data = std::get_if<Data>(&message);
  const BlockRange range = data ? data->range : std::get<Zeros>(message).range;
  if (!range_fits(range, blocks_) || !holds(range, block))
    return breach("answers block " + std::to_string(block) + " with " + text(range) + " on a disk of " +
                  std::to_string(blocks_));
  if (!data) return Answer{.kind = Answer::Kind::kZeros, .range = range};
  const size_t offset = static_cast<size_t>(data->bytes.data() - as_bytes(packet.bytes).data());
  Answer answer{.kind = Answer::Kind::kData, .range = range, .packet = std::move(packet.bytes)};
  answer.bytes = as_bytes(answer.packet).subspan(offset);
  return answer;
}

bool ChunkClient::tend() {
  Lock lock(mutex_);
  // What woke us wakes whoever receives as well: no turning in circles until it was taken.
  changed_.wait_for(lock, kTakenSoon, [this] { return !receiving_; });
  for (int i = 0; i < kMessagesPerTend && attached_ && !receiving_; i++)
    if (!receive(lock, MonotonicClock::now())) break;
  return attached_;
}

// ---- the connection ----

void ChunkClient::attach(UniqueFd socket) {
  Lock lock(mutex_);
  if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);  // whoever receives on it comes back
  attached_ = false;
  changed_.wait(lock, [this] { return !receiving_; });
  socket_ = std::move(socket);
  outbox_.clear();
  broken_.reset();
  welcomed_ = false;
  attached_ = true;
  say(Hello{.disk = disk_, .held = held_.held()});
  for (const auto& [id, waiter] : open_)
    if (waiter->asked && !waiter->answer) say(Ask{id, waiter->block, waiter->count});
  changed_.notify_all();
}

void ChunkClient::give_up(const Error& why) {
  const std::lock_guard lock(mutex_);
  broken_ = why;
  changed_.notify_all();
}

void ChunkClient::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  attached_ = false;
  if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
  changed_.notify_all();
}

void ChunkClient::after_fork() {
  // Safety: single-threaded here; the threads that used these do not exist in this process.
  std::construct_at(&mutex_);
  std::construct_at(&changed_);
  socket_.reset();  // and no shutdown: the parent goes on with it
  attached_ = receiving_ = false;
  outbox_.clear();
  broken_.reset();
  open_.clear();
}

}  // namespace ramet::image
