// vmm/control/bootstrap.h - the daemon's end of a bootstrap socket: first packet, waiting for Ready, Commit. See control.proto.
// Not here: starting the process. Thread: one owner. Closing it before commit() ends the VMM.
#pragma once

#include <span>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "vmm/control/codec.h"

namespace ramet::vmm::control {

class BootstrapSocket {
 public:
  // A pair: our end, and the end that becomes --bootstrap-fd or ForkChild.bootstrap_fd.
  struct Pair;
  static Result<Pair> make_pair();
  explicit BootstrapSocket(UniqueFd socket) : socket_(std::move(socket)) {}

  Status send(const Bootstrap& message, std::span<const int> fds, Deadline deadline);
  Status send(const ChildSetup& message, std::span<const int> fds, Deadline deadline);
  // Errors: what the VMM reported as Failed; kUnavailable (it ended before); kTimeout; kCorrupt.
  Result<Ready> wait_ready(Deadline deadline);
  Status commit(Deadline deadline);
  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
};

struct BootstrapSocket::Pair {
  BootstrapSocket ours;
  UniqueFd theirs;
};

}  // namespace ramet::vmm::control
