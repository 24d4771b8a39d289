// host/agent_client.h - one operation of the agent inside a guest, over a byte stream that the monitor opened
// (abi/agent.proto). The guest is hostile: whatever arrives is bounded by the frame limit, has to parse, and can at worst make
// the call fail. AgentChannel is the framed stream of one operation; the functions below it are the operations that answer at
// once. Thread: AgentChannel: one receiver, one sender, cancel() from anywhere. Owner: the caller. Not here: reaching the
// guest.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "abi/agent.pb.h"
#include "abi/frame.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet::host {

class AgentChannel {
 public:
  explicit AgentChannel(UniqueFd stream);

  // Errors: kTimeout, kCancelled, kUnavailable (the guest closed), kInvalid (message longer than a frame).
  Status send(const abi::Request& request, Deadline deadline);
  Status send(const abi::Input& input, Deadline deadline);
  // Errors: as above; kCorrupt (the guest broke the protocol: the channel is of no further use).
  Result<abi::Event> receive(Deadline deadline);
  // Receives events until the result; any event other than the result is a protocol error.
  Result<abi::Result> receive_result(Deadline deadline);
  // Wakes both sides for good.
  void cancel();

 private:
  template <class Message>
  Status send_frame(const Message& message, Deadline deadline);
  UniqueFd stream_;
  abi::FrameBuffer buffer_;
  std::atomic<bool> cancelled_{false};
  std::mutex send_mutex_;  // a frame is written whole; held while the guest does not read, by design
};

// The agent's error as ours; its text is cut to 512 bytes and made printable.
Error error_of(const abi::Error& error);
// A result with an error becomes that error.
Status check_result(const abi::Result& result);

// One request, one result.
Result<abi::Result> agent_call(UniqueFd stream, const abi::Request& request, Deadline deadline);

// Printable UTF-8 of at most `limit` bytes: what may go into a message.
std::string printable(std::string_view bytes, size_t limit);

}  // namespace ramet::host
