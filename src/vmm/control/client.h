// vmm/control/client.h - the daemon's end of the control protocol: calls with deadlines over one connection, events to a
// function. The VMM behind the socket is hostile: answers to nothing are dropped, wrong ones are kCorrupt, sizes are limited, a
// VMM that does not answer costs the caller its deadline and nothing else. Not here: starting VMMs (bootstrap.h), what
// sandboxes are. Thread: calls from any thread; the event function runs on the client's reader thread and must not call back
// into the client. Owner: whoever holds the VM (host/).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "vmm/control/codec.h"

namespace ramet::vmm::control {

class Client {
 public:
  using OnEvent = std::function<void(const Event&)>;
  // Once, when the connection is over (the VMM ended, or it broke the protocol).
  using OnClosed = std::function<void()>;

  static Result<std::unique_ptr<Client>> connect(const std::string& path, OnEvent on_event, OnClosed on_closed = {});
  static std::unique_ptr<Client> adopt(UniqueFd connection, OnEvent on_event, OnClosed on_closed = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  struct Answer {
    Response response;
    ReceivedFds fds;
  };
  // request.id is set here.   Errors: what the VMM answered as Failure; kTimeout; kUnavailable (connection over).
  Result<Answer> call(Request request, std::span<const int> fds, Deadline deadline);

  Status ping(Deadline deadline);
  // One end of a byte stream to the guest's vsock port.
  Result<UniqueFd> connect_guest(uint32_t port, Milliseconds limit);
  struct ForkAnswer {
    Forked forked;                 // children in the order asked for
    std::vector<UniqueFd> pidfds;  // same order; invalid where children(i) has a failure
  };
  // Builds nothing: `fork` and `fds` as in control.proto.
  Result<ForkAnswer> fork(const Fork& fork, std::span<const int> fds, Deadline deadline);
  Result<Captured> capture(int vmstate_fd, int even_fd, int odd_fd, Deadline deadline);
  Status power_button(Deadline deadline);
  Status stop(Deadline deadline);
  Status pause(Deadline deadline);
  Status resume(Deadline deadline);
  Result<Stats> stats(Deadline deadline);
  // A new chunk socket for a disk whose base is chunked.   Errors: kNotFound (no such disk), kConflict (not chunked).
  Status attach_base(const std::string& disk_id, int chunk_fd, Deadline deadline);
  Status debug_push(std::span<const uint32_t> words, Deadline deadline);

 private:
  Client(UniqueFd connection, OnEvent on_event, OnClosed on_closed);
  void read_loop();
  void deliver(FromVmm message, ReceivedFds fds);
  Status call_for_ok(Request request, Deadline deadline, std::span<const int> fds = {});

  UniqueFd connection_;
  UniqueFd stop_read_, stop_write_;  // a pipe: wakes the reader to end
  const OnEvent on_event_;
  const OnClosed on_closed_;

  std::mutex mutex_;  // guards all below
  std::condition_variable answered_;
  uint64_t next_id_ = 1;
  bool closed_ = false;
  std::map<uint64_t, std::unique_ptr<Answer>> calls_;  // null while the answer is awaited

  std::mutex send_mutex_;  // one packet at a time
  std::thread reader_;     // ends in the destructor
};

}  // namespace ramet::vmm::control
