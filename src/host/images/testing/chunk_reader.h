// host/images/testing/chunk_reader.h - a reader on the chunk socket that does one thing at a time and says what came. Also a
// hostile one: send() takes any bytes. Thread: one test.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>

#include "base/file.h"
#include "base/socket.h"
#include "image/chunk_protocol.h"

namespace ramet::host::testing {

class ChunkReader {
 public:
  explicit ChunkReader(UniqueFd socket) : socket_(std::move(socket)) {}

  struct Answer {
    std::string packet;  // owns what `message` points at
    image::DaemonMessage message;
    UniqueFd fd;
  };
  void send(std::string_view packet) {
    (void)send_message(socket_.get(), as_bytes(packet), {}, deadline_after(Milliseconds(5000))).has_value();
  }
  void send(const image::ReaderMessage& message) { send(image::encode(message)); }
  // None: it hung up.
  std::optional<Answer> receive() {
    Result<Received> got = receive_message(socket_.get(), image::kMaxChunkMessageBytes, deadline_after(Milliseconds(10'000)));
    if (!got || got->eof) return std::nullopt;
    Answer answer{std::move(got->bytes), {}, got->fds.empty() ? UniqueFd() : std::move(got->fds[0])};
    Result<image::DaemonMessage> message = image::decode_daemon_message(as_bytes(answer.packet));
    if (!message) return std::nullopt;
    answer.message = *std::move(message);
    return answer;
  }
  // What came, if it is of that kind.
  template <class T>
  std::optional<T> expect() {
    std::optional<Answer> answer = receive();
    if (!answer || !std::holds_alternative<T>(answer->message)) return std::nullopt;
    last_ = *std::move(answer);
    return std::get<T>(last_.message);
  }
  std::optional<uint64_t> hello(const std::string& disk = {}, std::vector<uint64_t> held = {}) {
    send(image::Hello{disk, std::move(held)});
    const std::optional<image::Welcome> welcome = expect<image::Welcome>();
    return welcome ? std::optional(welcome->blocks) : std::nullopt;
  }
  const Answer& last() const { return last_; }
  int socket() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  Answer last_;
};

}  // namespace ramet::host::testing
