// guest/agent.h - serves the host: accepts connections, decodes one request from each, runs it, answers. Everything that may
// wait is either an event of the reactor or a worker process. Not here: the operations themselves (follow, freezer, identity,
// files/ ...). Thread: the reactor's. Lives as long as the process.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "freezer.h"
#include "fs_freezer.h"
#include "process_table.h"
#include "session.h"
#include "workers.h"

namespace ramet::guest {

class Agent {
 public:
  struct Options {
    UserTasks* users = nullptr;   // null: no cgroups, nothing can be frozen
    bool owns_machine = false;    // we are init: identity, clock, file system and power are ours
    bool check_peer_cid = false;  // vsock: serve the host only, not users of the guest
    std::function<void(bool reboot, Nanoseconds grace)> on_shutdown;
  };
  static constexpr size_t kMaxSessions = 512;

  Agent(Reactor& reactor, UniqueFd listener, Options options);

  void reap();
  Status thaw() { return freezer_.thaw(); }

 private:
  void on_accept();
  void accept_later();
  bool comes_from_host(int fd) const;
  void open_session(UniqueFd fd);
  void close_session(uint64_t id);

  void on_frame(Session& session, std::string_view message);
  void dispatch(Session& session, const abi::Request& request);
  void answer(Session& session, abi::Event event);
  void answer_later(uint64_t id, abi::Event event);  // nothing when the host has left
  void answer_status(Session& session, const Status& status);

  void exec(Session& session, const abi::Exec& request);
  void attach(Session& session, const abi::Attach& request);
  void signal(Session& session, const abi::SendSignal& request);
  void write_stdin(Session& session, const abi::WriteStdin& request);
  void resize(Session& session, const abi::ResizePty& request);
  void identify(Session& session, const abi::Identify& request);
  void finish_identify(uint64_t id, const abi::Identify& request, MonotonicClock::time_point began_at);
  void freeze(Session& session, const abi::Freeze& request);
  void freeze_fs(Session& session, const abi::FreezeFs& request);
  void shut_down(Session& session, const abi::Shutdown& request);
  void run_worker(Session& session, const abi::Request& request);
  void run_disk_worker(Session& session, int (*body)());

  Reactor& reactor_;
  UniqueFd listener_;
  Watch listener_watch_;
  const Options options_;
  GenerationWatch generation_;
  Workers workers_;
  Freezer freezer_;
  FsFreezer fs_freezer_;
  ProcessTable processes_;
  uint64_t next_session_ = 1;
  std::map<uint64_t, Session> sessions_;

  const bool hosts_file_needed_;  // looked up once: a birth should not wait for the disk
  std::string sandbox_id_;
  uint64_t identified_ = 0;
  uint32_t identified_generation_ = 0;
  Timer vmgenid_timer_;
  std::function<void()> on_vmgenid_;
  Timer shutdown_timer_;
  Timer accept_timer_;  // runs while the listener is not watched for want of a descriptor
};

}  // namespace ramet::guest
