#include "host/machine.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>

#include "abi/frame.h"
#include "base/file.h"
#include "base/log.h"
#include "host/agent_client.h"  // printable

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

namespace ramet::host {

Result<uint64_t> process_start_time(pid_t pid) {
  TRY_ASSIGN(const std::string stat, read_file("/proc/" + std::to_string(pid) + "/stat"));
  size_t at = stat.rfind(')');  // the name may hold anything
  if (at == std::string::npos) return fail(ErrorKind::kCorrupt, "unreadable /proc/" + std::to_string(pid) + "/stat");
  for (int field = 2; field < 22 && at != std::string::npos; field++) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return fail(ErrorKind::kCorrupt, "unreadable /proc/" + std::to_string(pid) + "/stat");
  return std::strtoull(stat.c_str() + at + 1, nullptr, 10);
}

Result<UniqueFd> open_remembered_process(pid_t pid, uint64_t start_time) {
  if (pid <= 0) return fail(ErrorKind::kNotFound, "no process is known");
  TRY_ASSIGN(UniqueFd pidfd, open_pidfd(pid));
  // In this order: the descriptor holds on to the process whose start time is read next.
  TRY_ASSIGN(const uint64_t now, process_start_time(pid));
  if (now != start_time) return fail(ErrorKind::kNotFound, "process " + std::to_string(pid) + " is another one by now");
  return pidfd;
}

void kill_remembered_process(pid_t pid, uint64_t start_time) {
  const Result<UniqueFd> pidfd = open_remembered_process(pid, start_time);
  if (!pidfd) return;
  (void)signal_pidfd(pidfd->get(), SIGKILL);
  (void)wait_for(pidfd->get(), POLLIN, deadline_after(Milliseconds(5000)));
}

pid_t pid_of_pidfd(int pidfd) {
  const Result<std::string> info = read_file("/proc/self/fdinfo/" + std::to_string(pidfd));
  if (!info) return 0;
  const size_t at = info->find("Pid:");
  if (at == std::string::npos) return 0;
  const long pid = std::strtol(info->c_str() + at + 4, nullptr, 10);
  return pid > 0 ? static_cast<pid_t>(pid) : 0;
}

bool process_has_open(pid_t pid, const std::string& path) {
  struct stat wanted;
  if (::stat(path.c_str(), &wanted) < 0) return false;
  const std::string dir_path = "/proc/" + std::to_string(pid) + "/fd";
  DIR* dir = ::opendir(dir_path.c_str());
  if (!dir) return false;
  bool found = false;
  while (const dirent* e = ::readdir(dir)) {
    struct stat st;
    if (::fstatat(::dirfd(dir), e->d_name, &st, 0) == 0 && st.st_dev == wanted.st_dev && st.st_ino == wanted.st_ino) {
      found = true;
      break;
    }
  }
  ::closedir(dir);
  return found;
}

Result<std::shared_ptr<Machine>> Machine::start(const Options& options, const Program& program, vmm::Bootstrap& bootstrap,
                                                const FdsToSend& fds, Deadline deadline) {
  TRY_ASSIGN(BootstrapPair pair, make_bootstrap_pair());
  TRY_ASSIGN(const UniqueFd log, open_file(program.log_path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600));
  TRY_ASSIGN(const UniqueFd null, open_file("/dev/null", O_RDWR));
  constexpr int kBootstrapFd = 3;
  SpawnOptions spawn;
  spawn.argv = {program.path, "--bootstrap-fd", std::to_string(kBootstrapFd)};
  spawn.keep_fds = {{pair.theirs.get(), kBootstrapFd}};
  spawn.stdin_fd = null.get();
  spawn.stdout_fd = log.get();
  spawn.stderr_fd = log.get();
  TRY_ASSIGN(ChildProcess child, ChildProcess::spawn(spawn));
  pair.theirs.reset();
  TRY(vmm::control::send(pair.ours.get(), bootstrap, fds.fds(), deadline));
  TRY_ASSIGN(const ReadyReport report, await_ready(pair.ours.get(), deadline));
  if (report.sender != child.pid())
    return fail(ErrorKind::kCorrupt, "Ready came from process " + std::to_string(report.sender));
  TRY_ASSIGN(UniqueFd pidfd, open_pidfd(child.pid()));
  std::shared_ptr<Machine> m(new Machine(options));
  TRY_ASSIGN(const uint64_t start_time, process_start_time(child.pid()));
  m->facts_ = {
      options.id,  child.pid(), start_time, report.ready.ram_address(), report.ready.ram_bytes(), report.ready.generation(),
      report.ready};
  m->pidfd_ = std::move(pidfd);
  if (options.journal) TRY(options.journal(m->facts_));
  TRY(send_commit(pair.ours.get()));
  const Status linked = m->open_link(options, deadline);
  if (!linked) return tl::unexpected<Error>(linked.error());  // ChildProcess ends it
  child.detach();
  TRY(m->watch_process());
  return m;
}

Result<std::shared_ptr<Machine>> Machine::join_child(const Options& options, int bootstrap_socket, UniqueFd pidfd,
                                                     Deadline deadline) {
  std::unique_ptr<MemoryFiller::Faults> faults;
  OnUserfault serve;
  if (options.filler)
    serve = [&](UniqueFd userfault, uint64_t ram_address) -> Status {
      TRY_ASSIGN(faults, options.filler->serve(std::move(userfault), ram_address));
      return {};
    };
  TRY_ASSIGN(const ReadyReport report, await_ready(bootstrap_socket, deadline, serve));
  // The pidfd came from a hostile process. The sender's pid came from the kernel.
  const pid_t handed = pid_of_pidfd(pidfd.get());
  if (handed == 0 || handed != report.sender)
    return fail(ErrorKind::kCorrupt, "the monitor handed over process " + std::to_string(handed) + " but Ready came from " +
                                         std::to_string(report.sender));
  TRY_ASSIGN(const uint64_t start_time, process_start_time(handed));
  std::shared_ptr<Machine> m(new Machine(options));
  m->facts_ = {options.id,  handed, start_time, report.ready.ram_address(), report.ready.ram_bytes(), report.ready.generation(),
               report.ready};
  m->pidfd_ = std::move(pidfd);
  m->faults_ = std::move(faults);
  if (options.journal) TRY(options.journal(m->facts_));
  const Status committed = send_commit(bootstrap_socket);
  const Status linked = committed ? m->open_link(options, deadline) : committed;
  if (!linked) {
    m->kill();
    return tl::unexpected<Error>(linked.error());
  }
  TRY(m->watch_process());
  return m;
}

Result<std::shared_ptr<Machine>> Machine::adopt(const Options& options, const MachineFacts& facts, Deadline deadline) {
  std::shared_ptr<Machine> m(new Machine(options));
  m->facts_ = facts;
  TRY_ASSIGN(m->pidfd_, open_remembered_process(facts.pid, facts.pid_start));
  TRY(m->open_link(options, deadline));
  TRY(m->watch_process());
  return m;
}

Machine::~Machine() {
  if (pidfd_token_ != 0) watcher_.unwatch(pidfd_token_);
  link_.reset();  // before what its events write to
}

Status Machine::open_link(const Options& options, Deadline deadline) {
  MonitorLink::Callbacks callbacks;
  callbacks.event = [this](const vmm::Event& e) { on_event(e); };
  TRY_ASSIGN(link_, MonitorLink::connect(watcher_, options.socket_path, facts_.pid, std::move(callbacks), deadline));
  return {};
}

Status Machine::watch_process() {
  TRY_ASSIGN(const uint64_t token, watcher_.watch(pidfd_.get(), [this] { on_exit(); }));
  pidfd_token_ = token;
  return {};
}

void Machine::on_event(const vmm::Event& event) {
  if (event.has_debug_port()) {
    const std::lock_guard lock(mutex_);
    spoke_ = true;
    changed_.notify_all();
  }
  if (!event.has_ended()) return;
  const std::string reason = printable(event.ended().reason(), 64);
  const std::lock_guard lock(mutex_);
  said_ = MachineEnd{reason, printable(event.ended().detail(), 512),
                     reason == "poweroff" || reason == "reset" || reason == "stopped"};
}

void Machine::on_exit() {
  siginfo_t info{};
  const bool reaped =
      ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG) == 0 &&
      info.si_pid != 0;
  watcher_.mute(pidfd_token_);
  link_->drain();  // its last words may still be in the socket
  {
    const std::lock_guard lock(mutex_);
    if (end_) return;
    if (said_)
      end_ = said_;
    else if (reaped && (info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED))
      end_ = MachineEnd{"killed by signal " + std::to_string(info.si_status), {}, false};
    else if (reaped)
      end_ = MachineEnd{"ended with status " + std::to_string(info.si_status), {}, false};
    else
      end_ = MachineEnd{"died", {}, false};
    changed_.notify_all();
  }
  if (on_end_) on_end_(facts_.id);
}

Result<MonitorReply> Machine::call(vmm::Request request, const FdsToSend& fds, Deadline deadline) {
  return link_->call(std::move(request), fds, deadline);
}

Result<UniqueFd> Machine::agent_stream(Deadline deadline) { return link_->connect_guest(abi::kAgentPort, deadline); }

std::shared_ptr<MemoryFiller> Machine::filler() const {
  if (!faults_ || faults_->filler().complete()) return nullptr;
  return faults_->filler().shared_from_this();
}

std::vector<uint32_t> Machine::touched_chunks() const {
  return faults_ ? faults_->filler().touched() : std::vector<uint32_t>();
}

void Machine::kill() { (void)signal_pidfd(pidfd_.get(), SIGKILL); }

bool Machine::alive() const {
  const std::lock_guard lock(mutex_);
  return !end_;
}

bool Machine::wait_first_word(Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return spoke_ || end_; }) && spoke_;
}

bool Machine::wait_end(Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return end_.has_value(); });
}

std::optional<MachineEnd> Machine::end() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

}  // namespace ramet::host
