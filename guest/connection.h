// guest/connection.h - one stream to the host: frames in, events out, never blocking.
// Output is queued; callers look at backlog() before they send bulk data and go on when on_drained is called. Reading can be
// paused, which is how a slow consumer inside the guest holds back the host.
// Not here: what frames mean (agent.h). Thread: the reactor's. Callbacks must not destroy the connection: Reactor::defer.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "abi/agent.pb.h"
#include "abi/frame.h"
#include "base/unique_fd.h"
#include "reactor.h"

namespace ramet::guest {

class Connection {
 public:
  struct Callbacks {
    std::function<void(std::string_view message)> on_frame;
    std::function<void()> on_drained;
    std::function<void()> on_closed;  // last call; also after finish() has sent everything
    std::function<void()> on_reset;   // the transport failed under the connection (a fork of the machine does that)
  };

  Connection(Reactor& reactor, UniqueFd fd, Callbacks callbacks);

  void send(const abi::Event& event);
  size_t backlog() const { return out_.size() - sent_; }
  void set_reading(bool on);
  // Nothing more will be sent or read; closes once the queue is out.
  void finish();
  bool finishing() const { return finishing_; }

  // For a worker that takes the stream over: its descriptor and what was read but not handed out. After abandon() the
  // connection is dead here, without callbacks; whoever has a duplicate of the descriptor goes on.
  int fd() const { return fd_.get(); }
  const abi::FrameBuffer& input() const { return in_; }
  void abandon();

 private:
  void on_events(uint32_t events);
  void read_some();
  void hand_out_frames();
  void flush();
  void update_watch();
  void close(bool reset);

  Callbacks callbacks_;
  UniqueFd fd_;
  Watch watch_;
  abi::FrameBuffer in_;
  std::string out_;
  size_t sent_ = 0;
  bool reading_ = true;
  bool handing_out_ = false;
  bool finishing_ = false;
  bool closed_ = false;
};

}  // namespace ramet::guest
