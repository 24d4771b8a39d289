#include "child.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <vector>

#include "base/file.h"
#include "error_table.h"
#include "spawn.h"
#include "users.h"

namespace ramet::guest {
namespace {

constexpr const char* kDefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr rlim_t kSoftOpenFiles = 65536, kHardOpenFiles = 524288;

[[noreturn]] void fail_start(int status, const Error& error) {
  StartFailure failure{};
  failure.code = code_of(error);
  failure.sys_errno = error.err();
  std::strncpy(failure.message, error.message().c_str(), sizeof failure.message - 1);
  (void)!::write(status, &failure, sizeof failure);
  ::_exit(127);
}

Status move_to(int from, int to) {
  if (from == to) return fail(ErrorKind::kInternal, "a standard stream is already in place");
  if (::dup2(from, to) < 0) return fail_errno("dup2");
  return {};
}

Status take_streams(const ChildStreams& s, const User& user) {
  if (!s.terminal) {
    TRY(move_to(s.in.get(), 0));
    TRY(move_to(s.out.get(), 1));
    return move_to(s.err.get(), 2);
  }
  const Result<gid_t> tty = find_group("tty");
  (void)!::fchown(s.terminal.get(), user.uid, tty ? *tty : user.gid);  // a terminal one cannot reopen is still a terminal
  (void)!::fchmod(s.terminal.get(), 0620);
  if (::ioctl(s.terminal.get(), TIOCSCTTY, 0) < 0) return fail_errno("take the terminal");
  for (int fd = 0; fd <= 2; fd++) TRY(move_to(s.terminal.get(), fd));
  return {};
}

// What the agent has for itself and its commands must not have.
void drop_privileges_of_the_agent() {
  const Result<UniqueFd> oom = open_file("/proc/self/oom_score_adj", O_WRONLY);
  if (oom) (void)!::write(oom->get(), "0", 1);
  ::setpriority(PRIO_PROCESS, 0, 0);
  ::umask(022);
  const rlimit files{kSoftOpenFiles, kHardOpenFiles};
  (void)::setrlimit(RLIMIT_NOFILE, &files);
}

// KEY=VALUE lines of /etc/environment, quotes removed as PAM does.
void add_environment_file(std::map<std::string, std::string>& env) {
  const Result<std::string> text = read_file("/etc/environment", 64u << 10);
  if (!text) return;
  std::string_view rest = *text;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.starts_with("export ")) line.remove_prefix(7);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0 || line[0] == '#') continue;
    std::string_view value = line.substr(equals + 1);
    if (value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0])
      value = value.substr(1, value.size() - 2);
    env[std::string(line.substr(0, equals))] = value;
  }
}

std::map<std::string, std::string> environment(const abi::Exec& exec, const User& user, const std::string& sandbox_id) {
  std::map<std::string, std::string> env;
  env["PATH"] = kDefaultPath;
  env["LANG"] = "C.UTF-8";
  add_environment_file(env);
  env["HOME"] = user.home;
  env["SHELL"] = user.shell;
  if (!user.name.empty()) env["USER"] = env["LOGNAME"] = user.name;
  if (!sandbox_id.empty()) env["RAMET_SANDBOX_ID"] = sandbox_id;
  if (exec.has_pty()) env["TERM"] = exec.term().empty() ? "xterm-256color" : exec.term();
  for (const auto& [name, value] : exec.env()) env[name] = value;
  return env;
}

Status enter_directory(const abi::Exec& exec, const User& user) {
  if (exec.cwd().empty()) {
    if (::chdir(user.home.c_str()) < 0) (void)!::chdir("/");
    return {};
  }
  if (::chdir(exec.cwd().c_str()) < 0) return fail_errno("change to directory " + exec.cwd());
  return {};
}

struct Program {
  std::string file;
  std::vector<std::string> argv;
};

Program program_of(const abi::Exec& exec, const User& user) {
  if (exec.argv_size() > 0) return {exec.argv(0), {exec.argv().begin(), exec.argv().end()}};
  if (exec.shell().empty()) return {user.shell, {"-" + user.shell.substr(user.shell.rfind('/') + 1)}};
  const std::string shell = ::access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
  Program program{shell, {shell}};
  if (exec.login()) program.argv.push_back("-l");
  program.argv.push_back("-c");
  program.argv.push_back(exec.shell());
  return program;
}

Status execute(const Program& program, const std::map<std::string, std::string>& env) {
  std::vector<std::string> assignments;
  for (const auto& [name, value] : env) assignments.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (const std::string& arg : program.argv) argv.push_back(const_cast<char*>(arg.c_str()));
  for (const std::string& assignment : assignments) envp.push_back(const_cast<char*>(assignment.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  ::environ = envp.data();  // the program is looked up in the command's PATH, not ours
  ::execvp(program.file.c_str(), argv.data());
  return fail_errno("run " + program.file);
}

Status become_program(const abi::Exec& exec, const std::string& sandbox_id, const ChildStreams& streams) {
  if (::setsid() < 0) return fail_errno("setsid");
  reset_signals();
  ::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);  // ours are so already; what init's caller left open is not
  TRY_ASSIGN(const User user, find_user(exec.user()));
  TRY(take_streams(streams, user));
  drop_privileges_of_the_agent();
  TRY(become(user));
  TRY(enter_directory(exec, user));
  return execute(program_of(exec, user), environment(exec, user, sandbox_id));
}

}  // namespace

void reset_signals() {
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // By the system call: the C library refuses to touch signals 32 and 33, which it uses itself and which may be ignored by
  // inheritance.
  struct {
    void* handler;
    unsigned long flags;
    void* restorer;
    unsigned long mask;
  } const by_default{};  // the kernel's struct sigaction; a null handler is SIG_DFL
  for (int sig = 1; sig < NSIG; sig++) ::syscall(SYS_rt_sigaction, sig, &by_default, nullptr, sizeof by_default.mask);
}

void run_child(const abi::Exec& exec, const std::string& sandbox_id, ChildStreams streams, UniqueFd status) {
  const Status outcome = become_program(exec, sandbox_id, streams);
  fail_start(status.get(), outcome.error());
}

}  // namespace ramet::guest
