// vmm/devices/vsock/connection.h - one stream between a guest port and the host: the protocol machine of both directions, with
// credit, half close and bounded buffering. The host's side is a socketpair: `ours` stays here, `theirs` goes to whoever asked.
// Not here: queues and descriptors, which stream a packet belongs to, timers (device.h).
//
//   (new) --REQUEST sent--> kRequesting --RESPONSE--> kEstablished --both directions shut, RST, linger over--> finished
//                              |                           |
//                              '--RST, deadline--> finished '--RST after the guest's orderly end, bytes still held for the
//                              host--> kDraining
//                                                                                            kDraining --written or host
//                                                                                            gone--> finished
//
// Guest to host: a payload is written to the socket at once; what does not fit is held, never more than `buf_alloc`, which is
// what the guest was promised; a guest that sends more is reset. Host to guest: the socket is read only when there is credit
// and a descriptor, so the socket's own buffer is all that a host can pile up.
//
// Thread: with the device mutex held. No call blocks. Owner: the device's table. A resource: neither copied nor moved.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "vmm/devices/vsock/packet.h"

namespace ramet::vmm::vsock {

struct StreamPorts {
  uint32_t host = 0;
  uint32_t guest = 0;
};

// What the device must do after a step of the machine.
enum class After {
  kContinue,
  kFinished,           // forget the stream
  kFinishedWithReset,  // forget it and tell the guest by RST
};

class Connection {
 public:
  enum class State { kRequesting, kEstablished, kDraining };

  // How long a stream whose host is gone may go on without progress before it is reset (Linux waits 8 s for the same).
  static constexpr Milliseconds kLinger{10'000};

  Connection(StreamPorts ports, UniqueFd ours, uint32_t buf_alloc, Deadline connect_deadline);

  StreamPorts ports() const { return ports_; }
  State state() const { return state_; }
  int socket() const { return ours_.get(); }
  // The socket leaves the machine: for a stream that is finished.
  UniqueFd take_socket() { return std::move(ours_); }

  // A checked packet of this stream; payload has packet.len bytes and may be guest memory.
  After on_packet(const Packet& packet, std::span<const iovec> payload);
  // What epoll said about the socket.
  After on_socket(uint32_t epoll_events, Deadline now);
  // The deadline has passed: a stream that was never answered, or lingers.
  std::optional<Deadline> deadline() const { return deadline_; }

  // Whether next_packet() has, or may have, something.
  bool wants_to_send() const;
  // How many payload bytes the next packet may carry now.
  uint32_t send_window() const;
  // The next packet for the guest, its payload read from the socket into `room` (of at most send_window() bytes). nullopt:
  // nothing now.
  std::optional<Packet> next_packet(std::span<const iovec> room, Deadline now);
  bool request_sent() const { return request_sent_; }

  // Bytes that wait for the host to read: EPOLLOUT is of interest.
  bool holds_data() const { return held_bytes() > 0; }
  size_t held_bytes() const { return held_.size() - held_head_; }

 private:
  void take_peer_credit(const Packet& packet);
  After on_established(const Packet& packet, std::span<const iovec> payload);
  After on_data(const Packet& packet, std::span<const iovec> payload);
  After on_shutdown(uint32_t flags);
  // Writes held bytes while the socket takes them, and passes the guest's end on once all are out.
  After flush();
  After end_if_done();
  size_t write_now(std::span<const iovec> payload, size_t bytes);
  void hold(std::span<const iovec> payload, size_t skip);
  void forwarded(size_t bytes);
  void host_stopped_reading();
  void read_failed_or_ended();
  Packet packet(Op op) const;

  const StreamPorts ports_;
  UniqueFd ours_;
  const uint32_t buf_alloc_;
  State state_ = State::kRequesting;
  std::optional<Deadline> deadline_;

  // Guest to host. The counters wrap as those of the protocol do.
  uint32_t received_ = 0;        // from the guest
  uint32_t forwarded_ = 0;       // fwd_cnt: left this machine
  uint32_t forwarded_told_ = 0;  // fwd_cnt of the last packet to the guest
  std::vector<std::byte> held_;
  size_t held_head_ = 0;
  bool host_reads_ = true;       // false: what the guest still sends is thrown away
  uint32_t guest_shutdown_ = 0;  // flags the guest sent
  bool write_end_shut_ = false;

  // Host to guest.
  uint32_t sent_ = 0;
  uint32_t peer_buf_alloc_ = 0;
  uint32_t peer_forwarded_ = 0;
  bool readable_ = false;       // the socket may have bytes or its end
  bool end_announced_ = false;  // epoll told of the end, which may be behind bytes not read yet
  bool host_ended_ = false;     // read to the end
  bool host_closed_ = false;    // both directions (EPOLLHUP)
  uint32_t shutdown_wanted_ = 0, shutdown_sent_ = 0;

  bool request_sent_ = false;
  bool credit_wanted_ = false;
};

}  // namespace ramet::vmm::vsock
