// base/child_process.h - a program started by exec, known by pidfd. The owner decides its end: detach() lets it live on,
// the destructor kills and reaps it. Not here: fork without exec (vmm/fork). Thread: one owner.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace ramet {

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is the path of the program
  struct KeepFd {
    int fd;
    int as;
  };
  std::vector<KeepFd> keep_fds;  // borrowed; everything else is close-on-exec
  std::optional<int> stdin_fd, stdout_fd, stderr_fd;
  std::optional<std::vector<std::string>> env;  // inherited when absent
  bool new_session = true;                      // own session: no signal of our terminal reaches it
};

class ChildProcess {
 public:
  // Errors: by errno of the step that failed; kNotFound when the program does not exist.
  static Result<ChildProcess> spawn(const SpawnOptions& options);
  ChildProcess(ChildProcess&&) noexcept = default;
  ChildProcess& operator=(ChildProcess&&) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }
  Status signal(int sig);
  // The wait status, or nothing when it still runs at the deadline.
  std::optional<int> wait(Deadline deadline);
  // Gives up ownership; the process goes on and must be reaped by whoever inherits it.
  void detach();

 private:
  ChildProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  void kill_and_reap();
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  std::optional<int> status_;
};

// pidfd_open(2). Errors: kNotFound when no such process.
Result<UniqueFd> open_pidfd(pid_t pid);
// pidfd_send_signal(2).
Status signal_pidfd(int pidfd, int sig);

}  // namespace ramet
