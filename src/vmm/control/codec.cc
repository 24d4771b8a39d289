#include "vmm/control/codec.h"

#include "base/file.h"

namespace ramet::vmm::control {

Result<UniqueFd> ReceivedFds::take(uint32_t index, const char* what) {
  if (index == 0 || index > fds_.size())
    return fail(ErrorKind::kInvalid, std::string(what) + ": descriptor " + std::to_string(index) + " of " +
                                         std::to_string(fds_.size()) + " does not exist");
  UniqueFd& fd = fds_[index - 1];
  if (!fd) return fail(ErrorKind::kInvalid, std::string(what) + ": descriptor " + std::to_string(index) + " is used twice");
  return std::move(fd);
}

Result<UniqueFd> ReceivedFds::take_optional(uint32_t index, const char* what) {
  if (index == 0) return UniqueFd();
  return take(index, what);
}

Status send(int socket, const google::protobuf::MessageLite& message, std::span<const int> fds, Deadline deadline) {
  std::string bytes;
  if (!message.SerializeToString(&bytes)) return fail(ErrorKind::kInternal, "control message cannot be encoded");
  if (bytes.size() > kMaxControlBytes)
    return fail(ErrorKind::kInvalid, "control message has " + std::to_string(bytes.size()) + " bytes, the limit is " +
                                         std::to_string(kMaxControlBytes));
  // An empty packet reads like a hang-up: every message of the protocol has at least one field set.
  if (bytes.empty()) return fail(ErrorKind::kInvalid, "control message is empty");
  return send_message(socket, as_bytes(bytes), fds, deadline);
}

Result<ReceivedFds> receive(int socket, google::protobuf::MessageLite& message, Deadline deadline) {
  TRY_ASSIGN(Received packet, receive_message(socket, kMaxControlBytes, deadline));
  if (packet.eof) return fail(ErrorKind::kUnavailable, "the peer of the control socket hung up");
  if (!message.ParseFromString(packet.bytes)) return fail(ErrorKind::kCorrupt, "control packet is not a valid message");
  return ReceivedFds(std::move(packet.fds));
}

Failure to_failure(const Error& error) {
  Failure f;
  f.set_kind(std::string(kind_name(error.kind())));
  f.set_message(error.message());
  f.set_err(error.err());
  return f;
}

Error from_failure(const Failure& failure) { return Error(kind_from_name(failure.kind()), failure.message(), failure.err()); }

}  // namespace ramet::vmm::control
