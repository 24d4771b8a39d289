// image/testing/chunk_daemon.h - the daemon's side of chunk sockets for tests and benchmarks: one disk, whose content is a raw
// file; readers over socket pairs. Says what it was asked, can be told to answer wrongly or not at all, and to die.
// Not here: a cache, a store. Thread: all concurrently; one thread per connection, joined by die() and the destructor.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/all_zero.h"
#include "base/file.h"
#include "base/socket.h"
#include "image/chunk_protocol.h"
#include "image/iovecs.h"

namespace ramet::image::testing {

class ChunkDaemon {
 public:
  // Instead of the right answer. False: answer rightly.
  using Lie = std::function<bool(int socket, const Ask&)>;

  ChunkDaemon(UniqueFd raw, uint64_t blocks) : raw_(std::move(raw)), blocks_(blocks) {}
  ~ChunkDaemon() { die(); }

  // The reader's end of a new connection.
  UniqueFd connect() {
    SocketPair pair = make_socket_pair(SOCK_SEQPACKET).value();
    const std::lock_guard lock(mutex_);
    readers_.push_back(std::make_unique<Reader>(std::move(pair.a)));
    Reader& reader = *readers_.back();
    reader.thread = std::thread([this, &reader] { serve(reader); });
    return std::move(pair.b);
  }
  void die() {
    std::unique_lock lock(mutex_);
    silent_ = false;
    changed_.notify_all();
    std::vector<std::unique_ptr<Reader>> readers = std::move(readers_);
    readers_.clear();
    lock.unlock();
    for (const std::unique_ptr<Reader>& reader : readers) ::shutdown(reader->socket.get(), SHUT_RDWR);
    for (const std::unique_ptr<Reader>& reader : readers) reader->thread.join();
  }

  // Chunk + descriptor instead of Data, for every chunk that is not all zero.
  void give_descriptors(bool on) {
    set([&] { gives_descriptors_ = on; });
  }
  // Asks are taken and answered once this ends.
  void be_silent(bool on) {
    set([&] { silent_ = on; });
  }
  void lie(Lie lie) {
    set([&] { lie_ = std::move(lie); });
  }
  // What later welcomes say.
  void have_content(uint64_t number) {
    set([&] { content_number_ = number; });
  }
  void give_back(uint64_t chunk) {
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Reader>& reader : readers_) say(reader->socket.get(), GiveBack{chunk});
  }
  static void say(int socket, const DaemonMessage& message, const std::string& blocks = {}, std::span<const int> fds = {}) {
    static_cast<void>(send_message(socket, as_bytes(encode(message) + blocks), fds, Deadline::max()));
  }

  // ---- what it saw, of all connections ----
  std::vector<uint64_t> asked() const {
    return get<std::vector<uint64_t>>([&] { return asked_; });
  }  // in order
  std::set<uint64_t> blocks_sent() const {
    return get<std::set<uint64_t>>([&] { return sent_; });
  }  // as data
  std::vector<Hello> hellos() const {
    return get<std::vector<Hello>>([&] { return hellos_; });
  }
  std::vector<uint64_t> returned() const {
    return get<std::vector<uint64_t>>([&] { return returned_; });
  }
  // Descriptors that the readers have by their own account; and the most that one ever had.
  int given() const {
    return get<int>([&] { return given_; });
  }
  int most_given() const {
    return get<int>([&] { return most_given_; });
  }
  void wait_until(const std::function<bool()>& what) const {
    std::unique_lock lock(mutex_);
    while (true) {
      lock.unlock();
      if (what()) return;
      lock.lock();
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
  }

 private:
  struct Reader {
    explicit Reader(UniqueFd s) : socket(std::move(s)) {}
    UniqueFd socket;
    std::thread thread;
    int given = 0;
  };
  template <class T, class F>
  T get(F f) const {
    const std::lock_guard lock(mutex_);
    return f();
  }
  template <class F>
  void set(F f) {
    const std::lock_guard lock(mutex_);
    f();
    changed_.notify_all();
  }

  void serve(Reader& reader) {
    for (;;) {
      const Result<Received> packet = receive_message(reader.socket.get(), kMaxChunkMessageBytes, Deadline::max());
      if (!packet || packet->eof) return;
      const Result<ReaderMessage> message = decode_reader_message(as_bytes(packet->bytes));
      if (!message) return say(reader.socket.get(), Failed{0, message.error().kind(), message.error().message()});
      std::visit([&](const auto& m) { take(reader, m); }, *message);
    }
  }
  void take(Reader& reader, const Hello& hello) {
    say(reader.socket.get(), Welcome{blocks_, get<uint64_t>([&] { return content_number_; })});
    set([&] {  // after the answer: whoever sees it here may send something else, which must not come first
      hellos_.push_back(hello);
      count(reader, static_cast<int>(hello.held.size()));
    });
  }
  void take(Reader& reader, const Returned& returned) {
    set([&] {
      returned_.push_back(returned.chunk);
      count(reader, -1);
    });
  }
  void take(Reader& reader, const Ask& ask) {
    bool descriptors;
    Lie lie;
    {
      std::unique_lock lock(mutex_);
      asked_.push_back(ask.block);
      changed_.notify_all();
      changed_.wait(lock, [this] { return !silent_; });
      descriptors = gives_descriptors_;
      lie = lie_;
    }
    if (lie && lie(reader.socket.get(), ask)) return;
    if (descriptors) return give_chunk(reader, ask);
    const uint64_t first = ask.block / kMaxAnswerBlocks * kMaxAnswerBlocks;
    const std::string bytes = content({first, std::min(kMaxAnswerBlocks, blocks_ - first)});
    const BlockRange range{first, bytes.size() / kBlockBytes};
    if (all_zero(as_bytes(bytes))) return say(reader.socket.get(), Zeros{ask.id, range});
    set([&] {
      for (uint64_t b = range.first; b < range.end(); b++) sent_.insert(b);
    });
    say(reader.socket.get(), Data{ask.id, range, {}}, bytes);
  }
  void give_chunk(Reader& reader, const Ask& ask) {
    const uint64_t chunk = ask.block / kChunkBlocks;
    const BlockRange range{chunk * kChunkBlocks, std::min(kChunkBlocks, blocks_ - chunk * kChunkBlocks)};
    const int fd = file_of(chunk, range);
    if (fd < 0) return say(reader.socket.get(), Zeros{ask.id, range});
    set([&] { count(reader, 1); });
    say(reader.socket.get(), Chunk{ask.id, chunk}, {}, {&fd, 1});
  }
  // A file of its own on a real file system, short of the zeros at its end. -1: all zero.
  int file_of(uint64_t chunk, BlockRange range) {
    const std::lock_guard lock(files_mutex_);
    if (const auto found = files_.find(chunk); found != files_.end()) return found->second.get();
    std::string bytes = content(range);
    while (!bytes.empty() && all_zero(as_bytes(bytes).last(kBlockBytes))) bytes.resize(bytes.size() - kBlockBytes);
    UniqueFd file;
    if (!bytes.empty()) file = open_file("/tmp", O_TMPFILE | O_RDWR, 0600).value();
    if (file) static_cast<void>(pwrite_all(file.get(), as_bytes(bytes), 0));
    return (files_[chunk] = std::move(file)).get();
  }
  void count(Reader& reader, int more) {
    reader.given += more;
    given_ += more;
    most_given_ = std::max(most_given_, reader.given);
  }
  // Behind the end of the raw file everything is zero.
  std::string content(BlockRange range) const {
    std::string bytes(range.count * kBlockBytes, '\0');
    const ssize_t n = ::pread(raw_.get(), bytes.data(), bytes.size(), static_cast<off_t>(range.first * kBlockBytes));
    if (n < 0) std::abort();
    return bytes;
  }

  const UniqueFd raw_;
  const uint64_t blocks_;
  std::mutex files_mutex_;
  std::map<uint64_t, UniqueFd> files_;  // of chunks that were asked for; guarded by files_mutex_

  mutable std::mutex mutex_;  // guards all below
  mutable std::condition_variable changed_;
  std::vector<std::unique_ptr<Reader>> readers_;
  bool gives_descriptors_ = false;
  bool silent_ = false;
  uint64_t content_number_ = 0;
  Lie lie_;
  std::vector<uint64_t> asked_, returned_;
  std::set<uint64_t> sent_;
  std::vector<Hello> hellos_;
  int given_ = 0, most_given_ = 0;
};

}  // namespace ramet::image::testing
