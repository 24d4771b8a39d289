#include "vmm/control/bootstrap.h"

#include <sys/socket.h>

#include "base/file.h"

namespace ramet::vmm::control {

Result<BootstrapSocket::Pair> BootstrapSocket::make_pair() {
  TRY_ASSIGN(SocketPair pair, make_socket_pair(SOCK_SEQPACKET));
  return Pair{BootstrapSocket(std::move(pair.a)), std::move(pair.b)};
}

Status BootstrapSocket::send(const Bootstrap& message, std::span<const int> fds, Deadline deadline) {
  return control::send(socket_.get(), message, fds, deadline);
}
Status BootstrapSocket::send(const ChildSetup& message, std::span<const int> fds, Deadline deadline) {
  return control::send(socket_.get(), message, fds, deadline);
}

Result<Ready> BootstrapSocket::wait_ready(Deadline deadline) {
  BootstrapReply reply;
  TRY(receive(socket_.get(), reply, deadline));
  if (reply.has_failed()) return tl::unexpected<Error>(from_failure(reply.failed()));
  if (!reply.has_ready()) return fail(ErrorKind::kCorrupt, "the monitor's bootstrap answer is neither ready nor failed");
  return std::move(*reply.mutable_ready());
}

Status BootstrapSocket::commit(Deadline deadline) {
  BootstrapCommand command;
  command.set_commit(true);
  return control::send(socket_.get(), command, {}, deadline);
}

}  // namespace ramet::vmm::control
