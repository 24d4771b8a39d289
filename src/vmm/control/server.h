// vmm/control/server.h - the VMM's end of the control protocol: accepts the daemon's connection (a new one replaces the old, as
// after a daemon restart), hands requests to a function, sends responses and events.
// Events wait (bounded) while nobody is connected. A peer that does not read, or sends what is not a request, loses its
// connection. Without a descriptor for a new connection the old one makes room; without an old one it is tried again later. Not
// here: what requests do (monitor.h). Thread: the event loop's. Owner: the monitor.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "vmm/control/codec.h"
#include "vmm/event_loop.h"

namespace ramet::vmm::control {

class Server {
 public:
  // Names one request of one connection; answering a connection that is gone does nothing.
  struct Ticket {
    uint64_t connection = 0;
    uint64_t request = 0;
  };
  using Handler = std::function<void(Ticket, const Request&, ReceivedFds)>;

  Server(EventLoop& loop, Handler handler) : loop_(loop), handler_(std::move(handler)) {}
  ~Server();

  // Errors: kInvalid (not a listening socket).
  Status listen(UniqueFd listener);
  // response.id is set here. `fds` are borrowed.
  void respond(Ticket ticket, Response response, std::span<const int> fds = {});
  void respond_ok(Ticket ticket);
  void respond_error(Ticket ticket, const Error& error);
  void send_event(const Event& event);
  // Before the process ends: waits for queued packets to leave.
  void flush(Deadline deadline);
  // In a forked child: closes everything without touching the event loop; listen() begins anew.
  void after_fork();

 private:
  static constexpr size_t kMaxQueuedPackets = 4096;
  struct Packet {
    bool event = false;  // else a response, which dies with its connection
    std::string bytes;
    std::vector<UniqueFd> fds;
  };
  UniqueFd accept_one() const;
  void accept();
  void accept_later();
  void cancel_accept_later();
  void on_connection(uint32_t events);
  void read_requests();
  void enqueue(Packet packet);
  void send_queued();
  void disconnect();

  EventLoop& loop_;
  const Handler handler_;
  UniqueFd listener_, connection_;
  uint64_t connection_number_ = 0;
  bool watching_writable_ = false;
  std::optional<uint64_t> accept_timer_;  // runs while the listener is not watched
  bool accepts_later_ = false;            // said already
  std::deque<Packet> queue_;
};

}  // namespace ramet::vmm::control
