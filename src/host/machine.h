// host/machine.h - one running ramet-vmm that is ours: process, control link, what it said about itself, how it ended.
// Known by pidfd, by the start time of its pid, and by the sender's pid of every packet; a remembered pid alone is never used.
// Not here: files, sockets and cgroups (resources.h), what the machine is for.
// A resource. Thread: any. Destroying it forgets the process; it does not end it.
//
//   start() ── Bootstrap ─► Ready ─► journal pid ─► Commit ─► link     (by exec)
//   join_child() ───────────► Ready ─► journal pid ─► Commit ─► link   (by fork; ChildSetup was queued before)
//   adopt() ───────────────────────────────────────────────────► link  (after a restart of the daemon)
//   Before Commit our hang-up ends the process; after it only Stop, a signal, or its guest does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/child_process.h"
#include "host/memory_filler.h"
#include "host/monitor_link.h"
#include "host/watcher.h"

namespace ramet::host {

struct MachineFacts {
  std::string id;
  pid_t pid = 0;
  uint64_t pid_start = 0;
  uint64_t ram_address = 0;
  uint64_t ram_bytes = 0;
  uint32_t generation = 0;
  vmm::Ready ready;  // empty for an adopted one
};

struct MachineEnd {
  std::string reason;  // poweroff, reset, ... as the monitor said; "killed by signal 9", "died" when it could not
  std::string detail;
  bool clean = false;  // the guest or we wanted it
};

class Machine {
 public:
  using OnEnd = std::function<void(const std::string& id)>;  // on the watcher's thread, once; must not block
  // Called with pid and start time before the machine may live without us.
  using Journal = std::function<Status(const MachineFacts&)>;
  struct Options {
    Watcher& watcher;
    std::string id;
    std::string socket_path;
    OnEnd on_end;
    Journal journal;
    std::shared_ptr<MemoryFiller> filler;  // of the memory that a child is asked to have filled
  };
  struct Program {
    std::string path;
    std::string log_path;  // its stderr
  };

  static Result<std::shared_ptr<Machine>> start(const Options& options, const Program& program, vmm::Bootstrap& bootstrap,
                                                const FdsToSend& fds, Deadline deadline);
  // `pidfd`: what the parent handed over for this child.   Errors: kCorrupt when Ready came from another process.
  static Result<std::shared_ptr<Machine>> join_child(const Options& options, int bootstrap_socket, UniqueFd pidfd,
                                                     Deadline deadline);
  // Whose memory was still being filled asks for its descriptor: serve_faults().
  static Result<std::shared_ptr<Machine>> adopt(const Options& options, const MachineFacts& facts, Deadline deadline);
  ~Machine();

  const MachineFacts& facts() const { return facts_; }
  Result<MonitorReply> call(vmm::Request request, const FdsToSend& fds, Deadline deadline);
  // A stream to the guest's agent.
  Result<UniqueFd> agent_stream(Deadline deadline);
  // What fills its memory, as long as anything is missing.
  std::shared_ptr<MemoryFiller> filler() const;
  void serve_faults(std::unique_ptr<MemoryFiller::Faults> faults) { faults_ = std::move(faults); }
  // In what order its memory was waited for; empty when it was there from the beginning.
  std::vector<uint32_t> touched_chunks() const;
  // Held around a Fork request: a monitor does one at a time.
  std::mutex& fork_lock() { return fork_lock_; }
  void kill();
  bool alive() const;
  // A tiny guest's first word on its debug port: it is where it waits for commands. False: it never came.
  bool wait_first_word(Deadline deadline);
  // True: it has ended (and is reaped if it was our child).
  bool wait_end(Deadline deadline);
  std::optional<MachineEnd> end() const;

 private:
  explicit Machine(const Options& options) : watcher_(options.watcher), on_end_(options.on_end) {}
  Status watch_process();
  Status open_link(const Options& options, Deadline deadline);
  void on_event(const vmm::Event& event);
  void on_exit();

  Watcher& watcher_;
  OnEnd on_end_;
  MachineFacts facts_;
  UniqueFd pidfd_;
  std::atomic<uint64_t> pidfd_token_{0};
  std::unique_ptr<MonitorLink> link_;
  std::unique_ptr<MemoryFiller::Faults> faults_;  // set before others know the machine

  std::mutex fork_lock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<MachineEnd> said_;  // guarded by mutex_: Ended event, before the exit
  std::optional<MachineEnd> end_;   // guarded by mutex_
  bool spoke_ = false;              // guarded by mutex_: a word came from the debug port
};

// Field 22 of /proc/PID/stat.   Errors: kNotFound.
Result<uint64_t> process_start_time(pid_t pid);
// The process if it still is the one that was remembered.   Errors: kNotFound.
Result<UniqueFd> open_remembered_process(pid_t pid, uint64_t start_time);
// Kills it and waits a moment for its end; not finding it is success.
void kill_remembered_process(pid_t pid, uint64_t start_time);
// Whether the process has that very file open.
bool process_has_open(pid_t pid, const std::string& path);
// Which process a pidfd stands for; 0 when it has ended.
pid_t pid_of_pidfd(int pidfd);

}  // namespace ramet::host
