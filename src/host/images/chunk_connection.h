// host/images/chunk_connection.h - one reader on the chunk socket (docs/formats/chunk_socket.md): what it may ask, what it has
// asked, what it holds. The reader is hostile: a packet that breaks the protocol or a limit ends its connection, and nothing
// else. Every call is short; sending and receiving never wait.
//
//   fresh ── Hello taken ──► greeting ── Welcome queued ──► open        over: hung up, broke the protocol, or refused
//
// Not here: reading disks, threads (chunk_server.h). Thread: every method from any. Shared by the server's table and by work
// under way; the last one drops it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/unique_fd.h"
#include "host/images/disk_reader.h"
#include "image/chunk_protocol.h"

namespace ramet::host {

class ChunkConnection {
 public:
  // `bound`: the one disk that may be read here; null: the reader names an image.
  ChunkConnection(uint64_t id, UniqueFd socket, std::shared_ptr<OpenImage> bound)
      : id_(id), socket_(std::move(socket)), bound_(std::move(bound)) {}

  uint64_t id() const { return id_; }
  int socket() const { return socket_.get(); }
  const std::shared_ptr<OpenImage>& bound() const { return bound_; }

  // What has come, without waiting.   Errors: kUnavailable (hung up), kCorrupt, kUnsupported, kInvalid (over a limit).
  Status receive();

  struct Work {
    std::variant<image::Hello, image::Ask> what;
    std::shared_ptr<OpenImage> image;  // of Ask
    MayLend may_lend = MayLend::kNothing;
  };
  // The oldest thing to do. None while answers wait for the reader to take them, or a greeting is under way.
  bool has_work() const;
  std::optional<Work> take();

  struct Held {
    uint64_t chunk = 0;
    chunk::ChunkCache::Lease lease;
  };
  // Answers to what was taken. Nothing is sent before flush().
  void greet(std::shared_ptr<OpenImage> image, std::vector<Held> held);
  void answer(const image::Ask& ask, Result<DiskAnswer> answer);
  // Of the connection as a whole.
  void refuse(const Error& error);
  // Asks for the chunks that it has had for longest, at most `count` of those not asked for yet.
  void ask_back(size_t count);

  // As much as the reader takes now.   Errors: kUnavailable (hung up), kIo.
  Status flush();
  bool has_unsent() const;
  // Nothing comes or goes any more; what it held is free.
  void end();

  size_t held() const;

 private:
  struct Packet {
    std::string head;
    FrameCache::FramePtr frame;  // owns `data`
    std::span<const std::byte> data;
    std::optional<Held> lent;
  };
  struct Holding {
    chunk::ChunkCache::Lease lease;
    uint64_t since = 0;  // counts what was lent here
    bool asked_back = false;
  };
  enum class Stage { kFresh, kGreeting, kOpen, kOver };
  // With mutex_ held:
  Status handle(image::ReaderMessage message);
  bool may_take() const;
  MayLend may_lend(uint64_t block) const;
  void hold(Held held);
  Result<bool> send(const Packet& packet) const;

  const uint64_t id_;
  const UniqueFd socket_;
  const std::shared_ptr<OpenImage> bound_;

  mutable std::mutex mutex_;  // guards all below; held across sends and receives, which never wait
  Stage stage_ = Stage::kFresh;
  std::shared_ptr<OpenImage> image_;
  std::deque<std::variant<image::Hello, image::Ask>> waiting_;
  size_t unanswered_ = 0;
  std::deque<Packet> outbox_;
  std::map<uint64_t, Holding> held_;
  std::set<uint64_t> lending_;  // in the outbox, or taken with leave to lend
  uint64_t lent_ = 0;
};

}  // namespace ramet::host
