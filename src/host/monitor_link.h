// host/monitor_link.h - the daemon's end of one ramet-vmm: bootstrap handshake and control connection
// (vmm/control/control.proto). Requests of several threads travel at the same time; answers find their caller by id. Every
// packet carries its sender's pid by the kernel (SO_PASSCRED); one from another process than the machine's own is dropped and
// the link ended. A monitor is hostile after its first guest instruction: what it sends is bounded, parsed, checked; it can
// only fail its caller. Not here: the process's life (machine.h). Thread: call() from any; callbacks on the watcher's thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/socket.h"
#include "base/unique_fd.h"
#include "host/watcher.h"
#include "vmm/control/codec.h"

namespace ramet::host {

using vmm::control::FdsToSend;
using vmm::control::ReceivedFds;

// The daemon's end of a bootstrap socket.
struct BootstrapPair {
  UniqueFd ours, theirs;
};
Result<BootstrapPair> make_bootstrap_pair();
struct ReadyReport {
  vmm::Ready ready;
  pid_t sender = 0;
};
// Told the descriptor of a machine whose memory is being filled, before it touches any.
using OnUserfault = std::function<Status(UniqueFd userfault, uint64_t ram_address)>;
// Errors: the monitor's own Failure, kTimeout, kUnavailable (it ended), kCorrupt, those of `on_userfault`.
Result<ReadyReport> await_ready(int bootstrap_socket, Deadline deadline, const OnUserfault& on_userfault = {});
Status send_commit(int bootstrap_socket);

// The monitor's failure as ours, its text bounded and printable.
Error error_of(const vmm::Failure& failure);

// From one time to another, of which a monitor said one or both: any number.
double ms_between(int64_t from_ns, int64_t to_ns);

struct MonitorReply {
  vmm::Response response;
  ReceivedFds fds;
};

class MonitorLink {
 public:
  struct Callbacks {
    std::function<void(const vmm::Event&)> event;
    std::function<void()> closed;  // once; nothing follows
  };
  // Connects to the machine's listening socket and makes sure by a Ping that `expected` is who answers (0: learn it).
  static Result<std::unique_ptr<MonitorLink>> connect(Watcher& watcher, const std::string& path, pid_t expected,
                                                      Callbacks callbacks, Deadline deadline);
  ~MonitorLink();

  // Fills in the id. A Failure becomes an error.   Errors: kTimeout, kUnavailable (link gone), the monitor's own.
  Result<MonitorReply> call(vmm::Request request, const FdsToSend& fds, Deadline deadline);
  // A stream to a port of the guest.
  Result<UniqueFd> connect_guest(uint32_t port, Deadline deadline);
  pid_t pid() const { return pid_; }
  bool closed() const;
  // Takes what is in the socket now. Requires: on the watcher's thread.
  void drain() { on_readable(); }

 private:
  struct Pending {
    bool done = false;
    std::optional<MonitorReply> reply;  // none when done: the link closed
  };
  MonitorLink(Watcher& watcher, UniqueFd socket, Callbacks callbacks)
      : watcher_(watcher), socket_(std::move(socket)), callbacks_(std::move(callbacks)) {}
  void on_readable();
  bool take_packet(Received packet);
  void close_link();

  Watcher& watcher_;
  UniqueFd socket_;
  Callbacks callbacks_;
  std::atomic<uint64_t> token_{0};
  std::atomic<pid_t> pid_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Pending> pending_;  // guarded by mutex_
  uint64_t next_id_ = 1;                 // guarded by mutex_
  bool closed_ = false;                  // guarded by mutex_
};

}  // namespace ramet::host
