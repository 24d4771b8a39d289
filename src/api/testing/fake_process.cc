#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/testing/fake_host.h"
#include "base/file.h"

namespace ramet::api::testing {
namespace {

[[noreturn]] void become(const host::ExecOptions& o) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  if (!o.cwd.empty() && ::chdir(o.cwd.c_str()) != 0) ::_exit(126);
  for (const auto& [name, value] : o.env) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> argv = !o.argv.empty()    ? o.argv
                                  : !o.shell.empty() ? std::vector<std::string>{"/bin/sh", "-c", o.shell}
                                                     : std::vector<std::string>{"/bin/sh"};
  std::vector<char*> pointers;
  for (std::string& a : argv) pointers.push_back(a.data());
  pointers.push_back(nullptr);
  ::execvp(pointers[0], pointers.data());
  ::_exit(127);
}

// Before its setsid() the leader has no group of its own; then it is alone anyway.
int signal_all(uint32_t leader, int signal) {
  const auto pid = static_cast<pid_t>(leader);
  return ::kill(-pid, signal) == 0 ? 0 : ::kill(pid, signal);
}

}  // namespace

Result<std::shared_ptr<FakeProcess>> FakeProcess::start(const host::ExecOptions& o) {
  auto p = std::make_shared<FakeProcess>();
  p->options_ = o;
  p->started_ns_ = wall_ns();
  int out_fd = -1, err_fd = -1;
  pid_t pid = -1;
  if (o.pty) {
    winsize size{static_cast<unsigned short>(o.pty->rows), static_cast<unsigned short>(o.pty->cols), 0, 0};
    int master = -1;
    pid = ::forkpty(&master, nullptr, nullptr, &size);
    if (pid == 0) become(o);
    ::fcntl(master, F_SETFD, FD_CLOEXEC);
    out_fd = master;
    p->stdin_fd_ = ::fcntl(master, F_DUPFD_CLOEXEC, 0);
  } else {
    int in[2] = {-1, -1}, out[2], err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0 || ::pipe2(in, O_CLOEXEC) != 0) return fail_errno("pipe2");
    pid = ::fork();
    if (pid == 0) {
      ::setpgid(0, 0);
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      ::dup2(err[1], 2);
      become(o);
    }
    ::setpgid(pid, pid);
    ::close(in[0]);
    ::close(out[1]);
    ::close(err[1]);
    out_fd = out[0];
    err_fd = err[0];
    p->stdin_fd_ = in[1];
    if (!o.stdin_open) {
      ::close(p->stdin_fd_);
      p->stdin_fd_ = -1;
    }
  }
  if (pid < 0) return fail_errno("fork");
  p->pid = static_cast<uint32_t>(pid);
  p->reader_ = std::thread([raw = p.get(), out_fd, err_fd] { raw->read_output(out_fd, err_fd); });
  return p;
}

FakeProcess::~FakeProcess() {
  {
    const std::lock_guard lock(mutex);
    if (!exit) signal_all(pid, SIGKILL);
  }
  reader_.join();
  if (stdin_fd_ >= 0) ::close(stdin_fd_);
}

void FakeProcess::read_output(int out_fd, int err_fd) {
  const Deadline begin = MonotonicClock::now();
  bool timed_out = false;
  pollfd fds[2] = {{out_fd, POLLIN, 0}, {err_fd, POLLIN, 0}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    int wait = -1;
    if (options_.timeout_ms && !timed_out)
      wait = static_cast<int>(time_left(begin + Milliseconds(*options_.timeout_ms)).count());
    if (::poll(fds, 2, wait) == 0) {
      timed_out = true;
      signal_all(pid, SIGKILL);
      continue;
    }
    for (int i = 0; i < 2; i++) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      char piece[65536];
      const ssize_t n = ::read(fds[i].fd, piece, sizeof piece);
      if (n <= 0) {
        ::close(fds[i].fd);
        fds[i].fd = -1;
        continue;
      }
      const std::lock_guard lock(mutex);
      (i == 0 ? out : err).append(piece, static_cast<size_t>(n));
      changed.notify_all();
    }
  }
  int status = 0;
  ::waitpid(static_cast<pid_t>(pid), &status, 0);
  const std::lock_guard lock(mutex);
  host::ExitInfo e;
  e.code = WIFEXITED(status) ? static_cast<uint32_t>(WEXITSTATUS(status)) : 0;
  e.signal = WIFSIGNALED(status) ? static_cast<uint32_t>(WTERMSIG(status)) : 0;
  e.timed_out = timed_out;
  e.duration_ms = std::chrono::duration<double, std::milli>(MonotonicClock::now() - begin).count();
  exit = e;
  changed.notify_all();
}

host::ProcessInfo FakeProcess::info() const {
  const std::lock_guard lock(mutex);
  host::ProcessInfo i;
  i.pid = pid;
  i.argv = options_.argv.empty() ? std::vector<std::string>{"/bin/sh", "-c", options_.shell} : options_.argv;
  i.user = "user";
  i.tag = options_.tag;
  i.pty = options_.pty.has_value();
  i.running = !exit.has_value();
  i.exit = exit;
  i.started_at_ns = started_ns_;
  i.stdout_bytes = out.size();
  i.stderr_bytes = err.size();
  return i;
}

Status FakeProcess::write_stdin(std::string_view data, bool eof) {
  if (stdin_fd_ < 0) return fail(ErrorKind::kConflict, "standard input of this command is closed");
  TRY(write_all(stdin_fd_, as_bytes(data)));
  if (eof) {
    if (options_.pty) return write_all(stdin_fd_, as_bytes("\x04"));
    ::close(stdin_fd_);
    stdin_fd_ = -1;
  }
  return {};
}

Status FakeProcess::send_signal(uint32_t signal) {
  if (signal_all(pid, static_cast<int>(signal)) != 0) return fail_errno("signal");
  return {};
}

Status FakeProcess::resize(host::WindowSize size) {
  winsize w{static_cast<unsigned short>(size.rows), static_cast<unsigned short>(size.cols), 0, 0};
  if (::ioctl(stdin_fd_, TIOCSWINSZ, &w) != 0) return fail_errno("resize");
  return {};
}

}  // namespace ramet::api::testing
