// fuzz/descriptors.h - the descriptors a hostile peer sends beside its packets: files, sockets, pipes and others, by choice of
// the input. The files are the same ones each time within one run, so that an overlay's descriptors may belong together.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/socket.h"
#include "input.h"

namespace ramet {

// Bound to a name of the kernel's choice; connect_to() finds it.
inline UniqueFd listen_unnamed() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const sockaddr unnamed{AF_UNIX, {}};
  if (::bind(fd.get(), &unnamed, sizeof(sa_family_t)) < 0 || ::listen(fd.get(), 4) < 0) std::abort();
  return fd;
}

inline UniqueFd connect_to(int listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) < 0) std::abort();
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) < 0) return {};
  return fd;
}

class ForeignFds {
 public:
  static constexpr uint8_t kListener = 6, kStream = 7;

  std::vector<int> choose(FuzzInput& in) {
    if (in.rarely(100)) return std::vector<int>(kMaxFdsPerMessage, get(4));
    std::vector<int> out(in.upto(12));
    for (int& fd : out) fd = get(static_cast<uint8_t>(in.upto(kKinds - 1)));
    return out;
  }
  int get(uint8_t kind) {
    UniqueFd& fd = fds_[kind];
    if (!fd) fd = make(kind);
    return fd.get();
  }

 private:
  static constexpr uint8_t kKinds = 11;
  UniqueFd make(uint8_t kind) {
    switch (kind) {
      case 0:
      case 1: return *make_memfd("file", 0);
      case 2: return *reopen(get(0), O_RDONLY);
      case 3: return *reopen(get(1), O_RDONLY);
      case 4: return *open_file("/dev/null", O_RDWR);
      case 5: return *make_memfd("file", 1 << 16);
      case kListener: return listen_unnamed();
      case kStream: return std::move(make_socket_pair(SOCK_STREAM)->a);
      case 8: return std::move(make_socket_pair(SOCK_SEQPACKET)->a);
      case 9: return std::move(make_pipe()->read_end);
      default: return UniqueFd(::eventfd(0, EFD_CLOEXEC));
    }
  }
  std::array<UniqueFd, kKinds> fds_;
};

// One packet of the input: its bytes, sometimes too many, and descriptors.
struct ForeignPacket {
  std::string bytes;
  std::vector<int> fds;
  static ForeignPacket read(FuzzInput& in, ForeignFds& fds) {
    ForeignPacket p{in.bytes(4096), fds.choose(in)};
    if (in.rarely(200)) p.bytes.resize((64 << 10) + in.upto(1), '\x01');
    return p;
  }
  bool send(int socket) const { return send_message(socket, as_bytes(bytes), fds, MonotonicClock::now()).has_value(); }
};

inline int count_open_descriptors() {
  int n = 0;
  for (int fd = 0; fd < 600; fd++) n += ::fcntl(fd, F_GETFD) >= 0;
  return n;
}

}  // namespace ramet
