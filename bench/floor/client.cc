#include "floor/client.h"

#include <sys/socket.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/socket.h"
#include "guests/lib/protocol.h"

namespace ramet::bench {
namespace {

constexpr std::chrono::seconds kPatience(120);  // an interpreting KVM needs seconds for a large write

}  // namespace

Result<FloorClient> FloorClient::start(const BaseShape& shape, const std::string& guest_elf) {
  TRY_ASSIGN(SocketPair pair, make_socket_pair(SOCK_SEQPACKET));
  constexpr int kSocketFd = 3;
  SpawnOptions options;
  options.argv = {std::filesystem::canonical("/proc/self/exe").parent_path() / "fork_floor",
                  std::to_string(kSocketFd),
                  std::to_string(shape.ram_mib),
                  std::to_string(shape.fill_start_mib),
                  std::to_string(shape.fill_mib),
                  guest_elf};
  options.keep_fds = {{pair.b.get(), kSocketFd}};
  TRY_ASSIGN(ChildProcess process, ChildProcess::spawn(options));
  pair.b.reset();
  FloorClient client(std::move(process), std::move(pair.a));
  TRY(client.expect(FloorEvent::kReady));
  return client;
}

Status FloorClient::request(FloorOp op, uint32_t word) {
  const FloorRequest message{op, word};
  return send_message(socket_.get(), std::as_bytes(std::span(&message, 1)), {}, deadline_after(kPatience));
}

Result<FloorReply> FloorClient::reply() {
  TRY_ASSIGN(Received received, receive_message(socket_.get(), sizeof(FloorReply), deadline_after(kPatience)));
  if (received.bytes.size() != sizeof(FloorReply)) return fail(ErrorKind::kUnavailable, "the floor programme ended");
  FloorReply message;
  std::memcpy(&message, received.bytes.data(), sizeof message);
  return message;
}

Status FloorClient::expect(FloorEvent event) {
  TRY_ASSIGN(FloorReply message, reply());
  if (message.event != event) return fail(ErrorKind::kInternal, "the floor programme answered out of turn");
  return {};
}

Result<uint32_t> FloorClient::command(uint32_t kind, uint32_t value) {
  TRY(request(FloorOp::kWord, guests::word(kind, value)));
  TRY_ASSIGN(FloorReply message, reply());
  return guests::value_of(message.word);
}

Result<FloorClient::Fork> FloorClient::fork() {
  TRY(request(FloorOp::kFork, 0));
  Fork result{};
  for (int i = 0; i < 2; i++) {
    TRY_ASSIGN(FloorReply message, reply());
    (message.event == FloorEvent::kForked ? result.parent : result.child) = message;
  }
  return result;
}

Status FloorClient::end_children() {
  TRY(request(FloorOp::kEndChildren, 0));
  return expect(FloorEvent::kEnded);
}

Status FloorClient::descend() {
  TRY(request(FloorOp::kDescend, 0));
  return expect(FloorEvent::kReady);
}

Status FloorClient::restart() {
  TRY(request(FloorOp::kRestart, 0));
  return expect(FloorEvent::kReady);
}

}  // namespace ramet::bench
