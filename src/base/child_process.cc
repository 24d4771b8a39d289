#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>

#include "base/file.h"
#include "base/socket.h"

extern char** environ;

namespace ramet {
namespace {

// Runs in the new process, between fork and exec: only async-signal-safe calls.
[[noreturn]] void exec_child(const SpawnOptions& o, char* const* argv, char* const* envp, int report_fd) {
  const auto give_up = [report_fd] {
    const int err = errno;
    [[maybe_unused]] const ssize_t n = ::write(report_fd, &err, sizeof err);
    ::_exit(127);
  };
  if (o.new_session && ::setsid() < 0) give_up();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const std::optional<int> standard[3] = {o.stdin_fd, o.stdout_fd, o.stderr_fd};
  for (int i = 0; i < 3; i++)
    if (standard[i] && ::dup2(*standard[i], i) < 0) give_up();
  for (const SpawnOptions::KeepFd& k : o.keep_fds) {
    if (k.fd == k.as) {
      if (::fcntl(k.fd, F_SETFD, 0) < 0) give_up();
    } else if (::dup2(k.fd, k.as) < 0) {
      give_up();
    }
  }
  ::execve(argv[0], argv, envp);
  give_up();
  ::_exit(127);
}

}  // namespace

Result<UniqueFd> open_pidfd(pid_t pid) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return fail_errno("open pidfd of process " + std::to_string(pid));
  return UniqueFd(fd);
}

Status signal_pidfd(int pidfd, int sig) {
  if (::syscall(SYS_pidfd_send_signal, pidfd, sig, nullptr, 0) < 0) return fail_errno("signal process");
  return {};
}

Result<ChildProcess> ChildProcess::spawn(const SpawnOptions& options) {
  if (options.argv.empty()) return fail(ErrorKind::kInvalid, "spawn: no program given");
  std::vector<char*> argv;
  for (const std::string& s : options.argv) argv.push_back(const_cast<char*>(s.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> env;
  if (options.env) {
    for (const std::string& s : *options.env) env.push_back(const_cast<char*>(s.c_str()));
    env.push_back(nullptr);
  }
  TRY_ASSIGN(Pipe report, make_pipe());
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork");
  if (pid == 0) exec_child(options, argv.data(), options.env ? env.data() : environ, report.write_end.get());
  report.write_end.reset();
  int err = 0;
  ssize_t n;
  do n = ::read(report.read_end.get(), &err, sizeof err);
  while (n < 0 && errno == EINTR);
  if (n > 0) {
    ::waitpid(pid, nullptr, 0);
    return fail_errno("start " + options.argv[0], err);
  }
  Result<UniqueFd> pidfd = open_pidfd(pid);
  if (!pidfd) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return tl::unexpected<Error>(std::move(pidfd).error());
  }
  return ChildProcess(pid, std::move(*pidfd));
}

ChildProcess& ChildProcess::operator=(ChildProcess&& o) noexcept {
  if (this != &o) {
    kill_and_reap();
    pid_ = std::exchange(o.pid_, -1);
    pidfd_ = std::move(o.pidfd_);
    status_ = o.status_;
  }
  return *this;
}

ChildProcess::~ChildProcess() { kill_and_reap(); }

void ChildProcess::kill_and_reap() {
  if (!pidfd_ || status_) return;
  (void)signal_pidfd(pidfd_.get(), SIGKILL);
  int ignored;
  while (::waitpid(pid_, &ignored, 0) < 0 && errno == EINTR) {
  }
}

Status ChildProcess::signal(int sig) { return signal_pidfd(pidfd_.get(), sig); }

std::optional<int> ChildProcess::wait(Deadline deadline) {
  if (status_) return status_;
  if (!wait_for(pidfd_.get(), POLLIN, deadline)) return std::nullopt;
  int status = 0;
  pid_t r;
  do r = ::waitpid(pid_, &status, 0);
  while (r < 0 && errno == EINTR);
  status_ = r == pid_ ? status : 0;
  return status_;
}

void ChildProcess::detach() { pidfd_.reset(); }

}  // namespace ramet
