// guest/channel.h - a connection as a worker sees it: blocking, one frame after the other. Bounded: at most one frame and one
// read are held. Not here: the event loop's side (connection.h). Thread: the worker's only one.
#pragma once

#include "abi/agent.pb.h"
#include "abi/frame.h"
#include "base/result.h"

namespace ramet::guest {

class Channel {
 public:
  // Borrows `fd` and makes it blocking. `input`: what was read before the worker took over.
  Channel(int fd, abi::FrameBuffer input);

  // Errors: kUnavailable (the host is gone), kInvalid (not a frame of ours).
  Result<abi::Input> receive();
  Status send(const abi::Event& event);
  // The last event; success when `outcome` holds no error.
  void finish(const Status& outcome, abi::Event success);

  int fd() const { return fd_; }
  // The next frame of what has been read already; nothing when the socket must be read first.
  Result<std::optional<abi::Input>> buffered();
  // Reads what is there. False at the end of the stream.
  Result<bool> fill();

 private:
  int fd_;
  abi::FrameBuffer input_;
  std::string out_;
};

}  // namespace ramet::guest
