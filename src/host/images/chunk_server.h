// host/images/chunk_server.h - the chunk socket: many readers, each of one disk, answered side by side. Two doors:
//
//   attach(image)     a socket for a machine's monitor, bound to that image: it can reach nothing else
//   listen(path)      a socket file, mode 0600, where a reader names the image of a user (NBD)
//
// All its threads listen, and who heard of work does it, so the answer comes from the thread that the ask has woken. There is
// one thread more than may work at once: somebody always listens. A connection's turn ends after one ask, so a reader with many
// open asks does not keep the others waiting. Who connects while no descriptor is left waits until one is. Not here: the rules
// of one connection (chunk_connection.h), reading (disk_reader.h). Thread: every method from any. Threads of its own:
// `chunk-work`; they end in the destructor, and all connections with them. A resource.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "host/images/chunk_connection.h"

namespace ramet::host {

class ChunkServer {
 public:
  struct Options {
    size_t workers = 2;      // at once; one thread more listens
    size_t max_named = 256;  // connections by the socket file
    // Errors: kInvalid (name), kNotFound, kCorrupt, kIo.
    std::function<Result<std::shared_ptr<OpenImage>>(const std::string& name)> find;
  };
  // Errors: by errno.
  static Result<std::unique_ptr<ChunkServer>> start(DiskReader& reader, Options options);
  ~ChunkServer();
  ChunkServer(const ChunkServer&) = delete;
  ChunkServer& operator=(const ChunkServer&) = delete;

  // The reader's end of a new connection.   Errors: by errno.
  Result<UniqueFd> attach(std::shared_ptr<OpenImage> image);
  // Once.   Errors: by errno.
  Status listen(const std::string& path);
  // Readers shall give back chunks that they have had for long: the cache needs room. Not waited for.
  void ask_back();

  struct Usage {
    size_t connections = 0;
    size_t held_chunks = 0;
  };
  Usage usage() const;

 private:
  using ConnectionPtr = std::shared_ptr<ChunkConnection>;
  ChunkServer(DiskReader& reader, Options options) : reader_(reader), options_(std::move(options)) {}
  Status begin();
  void serve();
  bool hear();
  bool may_work() const { return working_ < options_.workers && !ready_.empty(); }
  void work_off();
  void call_one_more();
  void on_event(uint64_t id, uint32_t events);
  void accept_one();
  void accept_later(const Error& why);
  void accept_again();
  void watch_listener();
  Status add(UniqueFd socket, std::shared_ptr<OpenImage> bound);
  void work(const ConnectionPtr& connection, ChunkConnection::Work work);
  void greet(const ConnectionPtr& connection, const image::Hello& hello);
  Result<std::shared_ptr<OpenImage>> disk_of(const ChunkConnection& connection, const image::Hello& hello);
  void flush(const ConnectionPtr& connection);
  void tend(const ConnectionPtr& connection);
  void end(const ConnectionPtr& connection, const Error& why);
  ConnectionPtr take_event(uint64_t id);
  std::vector<ConnectionPtr> all() const;

  DiskReader& reader_;
  const Options options_;
  UniqueFd epoll_, stop_event_, listener_;
  UniqueFd more_work_;                       // counts calls for one more thread
  UniqueFd accept_timer_;                    // runs while the listener is not watched
  std::atomic<bool> accepts_later_ = false;  // said already

  mutable std::mutex mutex_;
  struct Entry {
    ConnectionPtr connection;
    bool ready = false;          // it is in ready_
    bool watched = true;         // epoll tells the next event: one, until it is taken up
    bool waits_to_send = false;  // epoll tells when the reader took something
  };
  std::unordered_map<uint64_t, Entry> connections_;  // guarded by mutex_
  std::deque<uint64_t> ready_;                       // guarded by mutex_: those with something to do
  uint64_t next_id_ = 0;                             // guarded by mutex_
  size_t working_ = 0;                               // guarded by mutex_: threads that do
  std::vector<std::thread> threads_;
};

}  // namespace ramet::host
