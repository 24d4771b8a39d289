// base/socket.h - unix sockets with descriptors beside the bytes (SCM_RIGHTS) and the sender's pid (SCM_CREDENTIALS).
// Not here: message formats. Thread: stateless. A received descriptor is always owned or closed, also on errors.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet {

inline constexpr size_t kMaxFdsPerMessage = 253;  // SCM_MAX_FD of the kernel

struct Received {
  std::string bytes;          // empty together with eof
  std::vector<UniqueFd> fds;  // close-on-exec
  pid_t sender_pid = 0;       // only when SO_PASSCRED is set on the receiving socket
  bool eof = false;
};

// One message of a SOCK_SEQPACKET (or one write of a SOCK_STREAM) socket. Blocks at most until the deadline, also on a
// non-blocking socket.   Errors: kInvalid (more than kMaxFdsPerMessage descriptors), kTimeout, kUnavailable (peer gone), kIo.
Status send_message(int socket, std::span<const std::byte> bytes, std::span<const int> fds, Deadline deadline);
// Errors: kTimeout, kUnavailable, kCorrupt (longer than max_bytes, or descriptors were truncated).
Result<Received> receive_message(int socket, size_t max_bytes, Deadline deadline);

// Listening unix socket with mode 0600; an existing socket file of that name is replaced.
Result<UniqueFd> listen_unix(const std::string& path, int type, int backlog);
Result<UniqueFd> connect_unix(const std::string& path, int type);
// Errors: kTimeout (nothing came by the deadline).
Result<UniqueFd> accept_unix(int listener, Deadline deadline);
// poll(2) for one event mask until the deadline.   Errors: kTimeout.
Status wait_for(int fd, short events, Deadline deadline);

}  // namespace ramet
