// image/chunk_client.h - a reader's end of the chunk socket (docs/formats/chunk_socket.md): asks of many threads at once over
// one connection. Not here: reading blocks (chunked_source.h), making connections.
//
//   attach(socket)          no thread of its own: of those who wait for an answer one receives, for all of them; when its own
//     |                     answer came another goes on
//   attached --- the daemon is gone --> gone     asks wait; attach() asks them again
//     |  '------ it breaks the rules,            asks fail with what it said, or which rule it broke, until attach()
//     |          or refuses us -------> broken
//     '--------- after_fork() --------> gone --- give_up() --> broken
//
// So a daemon that dies and comes back costs its readers time and nothing else. What it says is checked against what was asked
// and against the disk.
//
// Thread: ask() and cancel() concurrently with everything; attach(), tend(), give_up(), socket() and after_fork() from one
// thread (they are the ones that close the socket). Owner: the source. It is destroyed, and the process forked, with no ask in
// flight.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/socket.h"
#include "base/unique_fd.h"
#include "image/chunk_protocol.h"
#include "image/held_chunks.h"

namespace ramet::image {

// About the block that was asked for.
struct Answer {
  enum class Kind {
    kZeros,  // `range` holds the block and is zero
    kData,   // `range` holds the block, `bytes` is its content
    kChunk,  // its chunk was held when this came: look there
  };
  Kind kind = Kind::kZeros;
  BlockRange range;
  std::string packet;  // holds `bytes`
  std::span<const std::byte> bytes;
};

class ChunkClient {
 public:
  // `disk`: its name, empty where the connection is bound to it; `content`: as its welcome must say, else the first one tells.
  // Requires: held outlives it.
  ChunkClient(uint64_t disk_blocks, HeldChunks& held, std::string disk, std::optional<uint64_t> content)
      : blocks_(disk_blocks), disk_(std::move(disk)), held_(held), content_(content) {}

  // Speaks over this socket from now on; waits for nothing.
  void attach(UniqueFd socket);
  // `count`: blocks wanted from there on; the answer may hold fewer. Waits for the daemon as long as it takes.
  // Requires: they are on the disk, at least one.
  // Errors: what the daemon answered; kCorrupt, kUnsupported (it broke the rules); kCancelled.
  Result<Answer> ask(uint64_t block, uint32_t count);
  // Does what the daemon wants without having been asked; called when the socket is readable. False: there is nothing to
  // listen to any more until attach().
  bool tend();
  // For now no daemon comes: asks fail with this until attach().   Requires: tend() was false since the last attach().
  void give_up(const Error& why);
  // Every ask, also of later ones, ends with kCancelled.
  void cancel();
  int socket() const { return socket_.get(); }
  // In a forked child, first thing: the connection is the parent's.
  void after_fork();

 private:
  struct Waiter {
    uint64_t block;
    uint32_t count;
    bool asked = false;
    std::optional<Result<Answer>> answer;
  };
  using Lock = std::unique_lock<std::mutex>;

  void send_ask(Lock& lock, uint64_t id, Waiter& waiter);
  void await_answer(Lock& lock, Waiter& waiter);
  void say(const ReaderMessage& message);
  void send_what_fits();
  bool receive(Lock& lock, Deadline deadline);
  Status take(Received packet);
  Status take_welcome(const Welcome& welcome);
  Status take_give_back(uint64_t chunk);
  Status take_answer(uint64_t id, const DaemonMessage& message, Received& packet);
  Result<Answer> answer_of(uint64_t block, const DaemonMessage& message, Received& packet);
  void lose_connection(const Error* broken);

  const uint64_t blocks_;
  const std::string disk_;
  HeldChunks& held_;

  std::mutex mutex_;                 // guards all below; not held while receiving
  std::condition_variable changed_;  // an answer, a free place among the open ones, nobody receiving, any other state
  UniqueFd socket_;
  bool attached_ = false;
  bool welcomed_ = false;
  std::optional<uint64_t> content_;
  bool cancelled_ = false;
  bool receiving_ = false;            // somebody is: it alone reads the socket and handles what comes, in order
  std::optional<Error> broken_;       // why asks fail; not attached then
  std::deque<std::string> outbox_;    // what the socket did not take yet
  std::map<uint64_t, Waiter*> open_;  // by id
  uint64_t next_id_ = 1;
};

}  // namespace ramet::image
