#include "host/images/chunk_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/endian.h"
#include "base/file.h"
#include "base/socket.h"
#include "chunk/digest.h"

namespace ramet::host {
namespace {

using image::kMaxHeldChunks;
using image::kMaxOpenAsks;

// A Hello with all its chunks is the longest.
constexpr size_t kMaxReaderMessageBytes = 4096;
// Packets taken from one reader before the others' turn.
constexpr int kPacketsAtOnce = 64;

uint64_t chunk_of(uint64_t block) { return block / image::kChunkBlocks; }

// Of Welcome.
uint64_t content_of(const OpenImage& image) {
  const Digest digest = chunk::digest_of(as_bytes(image::encode_manifest_root(image.root())));
  le64 start;
  std::memcpy(&start, digest.bytes.data(), sizeof start);
  return start;
}

}  // namespace

Status ChunkConnection::receive() {
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < kPacketsAtOnce && stage_ != Stage::kOver; i++) {
    Result<Received> packet = receive_message(socket_.get(), kMaxReaderMessageBytes, MonotonicClock::now());
    if (!packet && packet.error().kind() == ErrorKind::kTimeout) return {};
    if (!packet) return tl::unexpected<Error>(std::move(packet).error());
    if (packet->eof) return fail(ErrorKind::kUnavailable, "the reader hung up");
    TRY_ASSIGN(image::ReaderMessage message, image::decode_reader_message(as_bytes(packet->bytes)));
    TRY(handle(std::move(message)));
  }
  return {};
}

Status ChunkConnection::handle(image::ReaderMessage message) {
  if (image::Returned* returned = std::get_if<image::Returned>(&message)) {
    held_.erase(returned->chunk);  // of a chunk that it does not have: nothing to do
    return {};
  }
  if (image::Hello* hello = std::get_if<image::Hello>(&message)) {
    if (stage_ != Stage::kFresh || !waiting_.empty()) return fail(ErrorKind::kInvalid, "a second Hello");
    waiting_.emplace_back(std::move(*hello));
    return {};
  }
  if (stage_ == Stage::kFresh && waiting_.empty()) return fail(ErrorKind::kInvalid, "an Ask before Hello");
  if (unanswered_ >= kMaxOpenAsks)
    return fail(ErrorKind::kInvalid, "more than " + std::to_string(kMaxOpenAsks) + " unanswered asks");
  unanswered_++;
  waiting_.emplace_back(std::get<image::Ask>(message));
  return {};
}

bool ChunkConnection::may_take() const {
  return !waiting_.empty() && outbox_.empty() && (stage_ == Stage::kFresh || stage_ == Stage::kOpen);
}

bool ChunkConnection::has_work() const {
  const std::lock_guard lock(mutex_);
  return may_take();
}

std::optional<ChunkConnection::Work> ChunkConnection::take() {
  const std::lock_guard lock(mutex_);
  if (!may_take()) return std::nullopt;
  Work work{std::move(waiting_.front()), image_};
  waiting_.pop_front();
  if (const image::Ask* ask = std::get_if<image::Ask>(&work.what)) {
    work.may_lend = may_lend(ask->block);
    if (work.may_lend == MayLend::kChunks) lending_.insert(chunk_of(ask->block));
  } else {
    stage_ = Stage::kGreeting;
  }
  return work;
}

MayLend ChunkConnection::may_lend(uint64_t block) const {
  const uint64_t chunk = chunk_of(block);
  const bool may = held_.size() + lending_.size() < kMaxHeldChunks && !held_.contains(chunk) && !lending_.contains(chunk);
  return may ? MayLend::kChunks : MayLend::kNothing;
}

void ChunkConnection::greet(std::shared_ptr<OpenImage> image, std::vector<Held> held) {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::kGreeting) return;
  stage_ = Stage::kOpen;
  image_ = std::move(image);
  for (Held& one : held) hold(std::move(one));
  outbox_.push_back({.head = image::encode(image::DaemonMessage(image::Welcome{image_->blocks(), content_of(*image_)}))});
}

void ChunkConnection::hold(Held held) {
  held.lease.close_fd();
  held_.erase(held.chunk);
  held_.emplace(held.chunk, Holding{std::move(held.lease), lent_++});
}

void ChunkConnection::answer(const image::Ask& ask, Result<DiskAnswer> answer) {
  const std::lock_guard lock(mutex_);
  if (stage_ != Stage::kOpen) return;
  unanswered_--;
  Packet packet;
  if (!answer) {
    const image::Failed failed{ask.id, answer.error().kind(), answer.error().message().substr(0, image::kMaxFailureBytes)};
    packet.head = image::encode(image::DaemonMessage(failed));
  } else if (const ZeroBlocks* zeros = std::get_if<ZeroBlocks>(&*answer)) {
    packet.head = image::encode(image::DaemonMessage(image::Zeros{ask.id, zeros->range}));
  } else if (const DataBlocks* data = std::get_if<DataBlocks>(&*answer)) {
    packet.head = image::encode(image::DaemonMessage(image::Data{ask.id, data->range, data->bytes}));
    packet.frame = data->frame;
    packet.data = data->bytes;
  } else {
    WholeChunk& whole = std::get<WholeChunk>(*answer);
    packet.head = image::encode(image::DaemonMessage(image::Chunk{ask.id, whole.number}));
    packet.lent = Held{whole.number, std::move(whole.lease)};
  }
  if (!packet.lent) lending_.erase(chunk_of(ask.block));
  outbox_.push_back(std::move(packet));
}

void ChunkConnection::refuse(const Error& error) {
  const std::lock_guard lock(mutex_);
  const image::Failed failed{0, error.kind(), error.message().substr(0, image::kMaxFailureBytes)};
  outbox_.push_back({.head = image::encode(image::DaemonMessage(failed))});
}

void ChunkConnection::ask_back(size_t count) {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<uint64_t, uint64_t>> oldest;  // since when, chunk
  for (const auto& [chunk, holding] : held_)
    if (!holding.asked_back) oldest.emplace_back(holding.since, chunk);
  const size_t take = std::min(count, oldest.size());
  std::partial_sort(oldest.begin(), oldest.begin() + static_cast<std::ptrdiff_t>(take), oldest.end());
  for (size_t i = 0; i < take; i++) {
    held_.at(oldest[i].second).asked_back = true;
    outbox_.push_back({.head = image::encode(image::DaemonMessage(image::GiveBack{oldest[i].second}))});
  }
}

Status ChunkConnection::flush() {
  const std::lock_guard lock(mutex_);
  while (!outbox_.empty() && stage_ != Stage::kOver) {
    Packet& packet = outbox_.front();
    TRY_ASSIGN(const bool sent, send(packet));
    if (!sent) return {};
    if (packet.lent) {
      lending_.erase(packet.lent->chunk);
      hold(std::move(*packet.lent));
    }
    outbox_.pop_front();
  }
  return {};
}

bool ChunkConnection::has_unsent() const {
  const std::lock_guard lock(mutex_);
  return !outbox_.empty();
}

// False: the reader has to take something first.
Result<bool> ChunkConnection::send(const Packet& packet) const {
  iovec parts[] = {{const_cast<char*>(packet.head.data()), packet.head.size()},
                   {const_cast<std::byte*>(packet.data.data()), packet.data.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr m{};
  m.msg_iov = parts;
  m.msg_iovlen = packet.data.empty() ? 1 : 2;
  if (packet.lent) {
    const int fd = packet.lent->lease.fd();
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  for (;;) {
    if (::sendmsg(socket_.get(), &m, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: too many descriptors are in flight to readers that do not take them.
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ETOOMANYREFS) return false;
    return fail_errno("send to a reader of chunks");
  }
}

void ChunkConnection::end() {
  std::map<uint64_t, Holding> held;  // given back without our lock
  std::deque<Packet> outbox;
  const std::lock_guard lock(mutex_);
  stage_ = Stage::kOver;
  held.swap(held_);
  outbox.swap(outbox_);
  waiting_.clear();
  image_.reset();
  ::shutdown(socket_.get(), SHUT_RDWR);
}

size_t ChunkConnection::held() const {
  const std::lock_guard lock(mutex_);
  return held_.size() + lending_.size();
}

}  // namespace ramet::host
