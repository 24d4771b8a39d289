// vmm/control/codec.h - control messages <-> packets: one protobuf message per SOCK_SEQPACKET packet, descriptors beside it.
// Both sides treat the other as hostile: sizes are limited before parsing, descriptor indexes are checked, each is used once.
// Not here: who speaks when (server.h, client.h). Thread: stateless.
#pragma once

#include <google/protobuf/message_lite.h>

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/socket.h"
#include "base/unique_fd.h"
#include "vmm/control/control.pb.h"

namespace ramet::vmm::control {

inline constexpr size_t kMaxControlBytes = 64 << 10;

// The descriptors of one packet; messages name them by 1-based index.
class ReceivedFds {
 public:
  ReceivedFds() = default;
  explicit ReceivedFds(std::vector<UniqueFd> fds) : fds_(std::move(fds)) {}
  // Errors: kInvalid (0, out of range, taken before).   `what` names the field.
  Result<UniqueFd> take(uint32_t index, const char* what);
  // No descriptor when index is 0.
  Result<UniqueFd> take_optional(uint32_t index, const char* what);

 private:
  std::vector<UniqueFd> fds_;
};

// Collects descriptors to send; add() answers the index to put into the message. Borrowed until sent.
class FdsToSend {
 public:
  uint32_t add(int fd) {
    fds_.push_back(fd);
    return static_cast<uint32_t>(fds_.size());
  }
  std::span<const int> fds() const { return fds_; }

 private:
  std::vector<int> fds_;
};

// Errors: kInvalid (too long), and those of send_message().
Status send(int socket, const google::protobuf::MessageLite& message, std::span<const int> fds, Deadline deadline);
// Errors: kUnavailable (the peer hung up), kCorrupt (not such a message), and those of receive_message().
Result<ReceivedFds> receive(int socket, google::protobuf::MessageLite& message, Deadline deadline);

Failure to_failure(const Error& error);
Error from_failure(const Failure& failure);

}  // namespace ramet::vmm::control
