#include "spawn.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "child.h"

namespace ramet::guest {
namespace {

// Straight into the leaf: moving a process there afterwards waits for an RCU grace period.
pid_t fork_into(int cgroup_dir) {
  if (cgroup_dir < 0) return ::fork();
  clone_args args{};
  args.flags = CLONE_INTO_CGROUP;
  args.exit_signal = SIGCHLD;
  args.cgroup = static_cast<uint64_t>(cgroup_dir);
  // Safety: without CLONE_VM this is fork(2). We have one thread, so the child's libc state is whole.
  return static_cast<pid_t>(::syscall(SYS_clone3, &args, sizeof args));
}

Result<Pipe> pipe_with_nonblocking_end(UniqueFd Pipe::*ours) {
  TRY_ASSIGN(Pipe pipe, make_pipe());
  TRY(set_nonblocking((pipe.*ours).get(), true));
  return pipe;
}

struct TerminalPair {
  UniqueFd master, slave;
};

Result<TerminalPair> open_terminal(const abi::WindowSize& size) {
  TRY_ASSIGN(UniqueFd master, open_file("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK));
  int locked = 0;
  if (::ioctl(master.get(), TIOCSPTLCK, &locked) < 0) return fail_errno("unlock a terminal");
  UniqueFd slave(::ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!slave) return fail_errno("open a terminal");
  TRY(set_window_size(master.get(), size));
  return TerminalPair{std::move(master), std::move(slave)};
}

// The descriptors of both halves; the child's die with this when spawn() returns.
struct Streams {
  Spawned ours;
  ChildStreams child;
};

Result<Streams> open_streams(const abi::Exec& exec) {
  Streams s;
  if (exec.has_pty()) {
    TRY_ASSIGN(TerminalPair pair, open_terminal(exec.pty()));
    s.ours.terminal = std::move(pair.master);
    s.child.terminal = std::move(pair.slave);
    return s;
  }
  if (exec.stdin_mode() == abi::STDIN_PIPE) {
    TRY_ASSIGN(Pipe in, pipe_with_nonblocking_end(&Pipe::write_end));
    s.ours.stdin_end = std::move(in.write_end);
    s.child.in = std::move(in.read_end);
  } else {
    TRY_ASSIGN(s.child.in, open_file("/dev/null", O_RDONLY));
  }
  TRY_ASSIGN(Pipe out, pipe_with_nonblocking_end(&Pipe::read_end));
  s.ours.stdout_end = std::move(out.read_end);
  s.child.out = std::move(out.write_end);
  TRY_ASSIGN(Pipe err, pipe_with_nonblocking_end(&Pipe::read_end));
  s.ours.stderr_end = std::move(err.read_end);
  s.child.err = std::move(err.write_end);
  return s;
}

}  // namespace

Status set_window_size(int terminal, const abi::WindowSize& size) {
  winsize ws{};
  ws.ws_row = static_cast<unsigned short>(std::clamp<uint32_t>(size.rows(), 1, 10000));
  ws.ws_col = static_cast<unsigned short>(std::clamp<uint32_t>(size.cols(), 1, 10000));
  if (::ioctl(terminal, TIOCSWINSZ, &ws) < 0) return fail_errno("set the size of a terminal");
  return {};
}

Status validate(const abi::Exec& exec) {
  if (exec.argv_size() > 0 && !exec.shell().empty()) return fail(ErrorKind::kInvalid, "exec: both argv and shell are given");
  if (exec.argv_size() == 0 && exec.shell().empty() && !exec.has_pty())
    return fail(ErrorKind::kInvalid, "exec: neither argv nor shell is given");
  if (exec.argv_size() > 0 && exec.argv(0).empty()) return fail(ErrorKind::kInvalid, "exec: argv[0] is empty");
  const auto has_zero = [](const std::string& s) { return s.find('\0') != std::string::npos; };
  bool zero = has_zero(exec.shell()) || has_zero(exec.cwd()) || has_zero(exec.user());
  for (const std::string& arg : exec.argv()) zero = zero || has_zero(arg);
  for (const auto& [name, value] : exec.env()) {
    if (name.empty() || name.find('=') != std::string::npos)
      return fail(ErrorKind::kInvalid, "exec: \"" + name + "\" cannot be the name of an environment variable");
    zero = zero || has_zero(name) || has_zero(value);
  }
  if (zero) return fail(ErrorKind::kInvalid, "exec: a zero byte in an argument, variable, user or directory");
  return {};
}

Result<Spawned> spawn(const abi::Exec& exec, const std::string& sandbox_id, UserTasks* users) {
  TRY(validate(exec));
  TRY_ASSIGN(Streams streams, open_streams(exec));
  TRY_ASSIGN(Pipe status, pipe_with_nonblocking_end(&Pipe::read_end));
  UserTasks::Leaf leaf;
  if (users) {
    TRY_ASSIGN(leaf, users->make_leaf());
  }
  const pid_t pid = fork_into(leaf.dir.valid() ? leaf.dir.get() : -1);
  if (pid == 0) run_child(exec, sandbox_id, std::move(streams.child), std::move(status.write_end));
  if (pid < 0) {
    const int err = errno;
    if (users) users->remove_leaf(leaf.name);
    return fail_errno("start a process", err);
  }
  Spawned spawned = std::move(streams.ours);
  spawned.pid = pid;
  spawned.leaf = std::move(leaf.name);
  spawned.start_status = std::move(status.read_end);
  return spawned;
}

Result<pid_t> fork_worker(int keep, const std::function<int(int fd)>& body) {
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("start a worker");
  if (pid > 0) return pid;
  reset_signals();
  constexpr int kKept = 3;
  if (keep >= 0) ::dup2(keep, kKept);
  ::close_range(keep >= 0 ? kKept + 1 : kKept, ~0u, 0);
  ::_exit(body(keep >= 0 ? kKept : -1));
}

}  // namespace ramet::guest
