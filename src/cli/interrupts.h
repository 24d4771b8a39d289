// cli/interrupts.h - signals that end a command which runs until it is told to stop: blocked for the whole program and waited
// for together with a child. Not here: signals that are passed on to a sandbox (cmd_exec.cc). Thread: begin() before others are
// started; wait() from one. Owner: the command.
#pragma once

#include "base/child_process.h"
#include "base/clock.h"
#include "base/unique_fd.h"

namespace ramet::cli {

class Interrupts {
 public:
  // SIGINT, SIGTERM and SIGHUP.
  static Result<Interrupts> begin();

  enum class Event { kSignal, kChildEnded, kReadable, kDeadline };
  // What comes first; `readable` may be -1.   Errors: kIo.
  Result<Event> wait(const ChildProcess& child, int readable, Deadline deadline);

 private:
  explicit Interrupts(UniqueFd signals) : signals_(std::move(signals)) {}
  UniqueFd signals_;
};

}  // namespace ramet::cli
