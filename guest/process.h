// guest/process.h - one command: its streams, its recent output, who follows it, how it ends.
//
//            start failed
//   starting ------------> failed        (followers get the error; the table forgets it)
//      | exec succeeded
//      v     leader reaped            streams empty or grace over
//   running --------------> ended ---------------------------------> finished   (kept for a while, for attach)
//
// Back pressure: with followers the streams are read only while the ring has room that the slowest follower has passed, so a
// slow host blocks the command. Without followers the oldest output goes. Timeout: SIGTERM to the group, after the grace
// SIGKILL to the whole cgroup leaf. A normal end kills nobody: daemons the command left behind live on and may keep its
// streams. Not here: starting (spawn.h), the collection of all commands (process_table.h). Thread: the reactor's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "abi/agent.pb.h"
#include "output_ring.h"
#include "reactor.h"
#include "spawn.h"

namespace ramet::guest {

class Process {
 public:
  // Whoever reads the output. Called on every change; must not destroy the process.
  class Follower {
   public:
    virtual ~Follower() = default;
    virtual void on_progress() = 0;
    OutputRing::Cursor cursor;
  };
  enum class State { kStarting, kRunning, kEnded, kFinished, kFailed };

  Process(Reactor& reactor, UserTasks* users, const abi::Exec& exec, Spawned spawned, const std::string& default_user);
  Process(const Process&) = delete;

  pid_t pid() const { return pid_; }
  State state() const { return state_; }
  bool over() const { return state_ == State::kFinished || state_ == State::kFailed; }
  const OutputRing& output() const { return ring_; }
  const abi::Error& start_error() const { return start_error_; }
  const std::string& leaf() const { return leaf_; }
  abi::Exit exit() const;
  abi::ProcessInfo info() const;
  MonotonicClock::time_point finished_at() const { return finished_at_; }

  void add_follower(Follower* follower);
  void remove_follower(Follower* follower);
  bool followed() const { return !followers_.empty(); }
  // A follower's cursor moved: there may be room to read on.
  void on_consumed() { update_reading(); }

  // The leader is a zombie now; it is reaped when this returns.
  void on_leader_exit(int wait_status);
  void set_on_over(std::function<void()> callback) { on_over_ = std::move(callback); }

  // Errors: kConflict when it is over.
  Status signal(int sig, bool leader_only);
  Status resize(const abi::WindowSize& size);
  // Queues input; see stdin_backlog(). Errors: kConflict when the command takes no input or has it closed.
  Status write_stdin(std::string_view bytes, bool eof);
  size_t stdin_backlog() const { return stdin_queue_.size(); }
  // Called once when all queued input is in the pipe or can no longer be.
  void when_stdin_drained(std::function<void()> callback);
  // SIGKILL to everything the command started.
  void kill_everything();
  // Gives the kept output back; for finished commands only.
  void forget_output() { ring_.clear_history(); }

 private:
  struct Stream {
    uint32_t fd_number;  // in the command
    UniqueFd fd;
    Watch watch;
    uint64_t drained_at = 0;  // bytes written once all that the leader left in the pipe has been read
  };

  void on_start_status();
  void on_readable(Stream& stream);
  void read_stream(Stream& stream);
  void close_stream(Stream& stream);
  bool make_room();
  void update_reading();
  void flush_stdin();
  void close_stdin();
  int input_fd() const { return terminal_ ? streams_[0].fd.get() : stdin_.get(); }
  void on_timeout();
  void drain_after_end();
  void on_terminal_quiet();
  void finish();
  void notify();

  Reactor& reactor_;
  UserTasks* users_;
  const pid_t pid_;
  const std::string leaf_;
  State state_ = State::kStarting;
  abi::ProcessInfo description_;
  abi::Error start_error_;
  const bool terminal_;
  const uint64_t timeout_ms_;

  UniqueFd start_status_;
  Watch start_watch_;
  std::vector<Stream> streams_;
  OutputRing ring_;
  std::vector<Follower*> followers_;
  bool notifying_ = false;

  UniqueFd stdin_;
  Watch stdin_watch_;
  std::string stdin_queue_;
  bool stdin_eof_queued_ = false;
  bool stdin_open_;
  std::vector<std::function<void()>> stdin_waiters_;

  Timer timer_;
  int wait_status_ = 0;
  bool timed_out_ = false;
  MonotonicClock::time_point started_at_;
  MonotonicClock::time_point finished_at_;
  std::function<void()> on_over_;
};

}  // namespace ramet::guest
