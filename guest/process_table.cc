#include "process_table.h"

#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include "users.h"

namespace ramet::guest {

ProcessTable::ProcessTable(Reactor& reactor, UserTasks* users)
    : reactor_(reactor), users_(users), default_user_(default_user()) {
  if (!users_) return;
  inotify_.reset(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (inotify_) inotify_watch_ = reactor_.watch(inotify_.get(), EPOLLIN, [this](uint32_t) { on_leaf_events(); });
}

Result<std::shared_ptr<Process>> ProcessTable::start(const abi::Exec& exec, const std::string& sandbox_id) {
  const size_t running = processes_.size() - finished_.size();
  if (running >= kMaxRunning)
    return fail(ErrorKind::kNoMemory,
                std::to_string(running) + " commands run already, the limit is " + std::to_string(kMaxRunning));
  TRY_ASSIGN(Spawned spawned, spawn(exec, sandbox_id, users_));
  const pid_t pid = spawned.pid;
  erase(pid);  // a finished namesake: the kernel has reused its number
  const auto process = std::make_shared<Process>(reactor_, users_, exec, std::move(spawned), default_user_);
  process->set_on_over([this, pid] { on_over(pid); });
  processes_[pid] = process;
  return process;
}

Result<std::shared_ptr<Process>> ProcessTable::find(uint32_t pid) const {
  const auto it = processes_.find(static_cast<pid_t>(pid));
  if (it == processes_.end()) return fail(ErrorKind::kNotFound, "no command with pid " + std::to_string(pid));
  return it->second;
}

abi::ProcessList ProcessTable::list() const {
  abi::ProcessList list;
  constexpr size_t kMaxListBytes = 900u << 10;
  size_t bytes = 0;
  for (const auto& [pid, process] : processes_) {
    abi::ProcessInfo info = process->info();
    if ((bytes += info.ByteSizeLong() + 8) > kMaxListBytes) break;
    *list.add_processes() = std::move(info);
  }
  return list;
}

void ProcessTable::reap(const std::function<void(pid_t, int)>& on_other) {
  for (;;) {
    siginfo_t info{};
    // Seen before it is reaped: while it is a zombie its number, also as that of its group, belongs to nobody else.
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0) return;
    const auto it = processes_.find(info.si_pid);
    std::shared_ptr<Process> process;
    if (it != processes_.end() &&
        (it->second->state() == Process::State::kStarting || it->second->state() == Process::State::kRunning))
      process = it->second;
    const int code = info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0) : W_EXITCODE(0, info.si_status);
    if (process) process->on_leader_exit(code);
    int status = 0;
    ::waitpid(info.si_pid, &status, 0);
    if (!process) on_other(info.si_pid, status);
  }
}

void ProcessTable::on_over(pid_t pid) {
  const auto it = processes_.find(pid);
  if (it == processes_.end()) return;
  // Not at once: the process is on the stack, and its zombie may still sit in the leaf.
  reactor_.defer([this, pid, process = it->second] {
    watch_leaf(process->leaf());
    const auto still = processes_.find(pid);
    if (still == processes_.end() || still->second != process) return;
    if (process->state() == Process::State::kFailed) {
      processes_.erase(still);
    } else {
      finished_.push_back(pid);
      forget_finished();
    }
  });
}

void ProcessTable::forget_finished() {
  size_t kept_bytes = 0;
  for (const pid_t pid : finished_) kept_bytes += processes_.at(pid)->output().cost_bytes();
  const MonotonicClock::time_point now = MonotonicClock::now();
  while (!finished_.empty()) {
    const std::shared_ptr<Process>& oldest = processes_.at(finished_.front());
    const bool too_many = finished_.size() > kMaxFinished || kept_bytes > kMaxKeptBytes;
    if (!too_many && now - oldest->finished_at() < kKeepFinished) break;
    kept_bytes -= oldest->output().cost_bytes();
    erase(finished_.front());
  }
  if (finished_.empty()) return forget_timer_.cancel();
  const Nanoseconds left = processes_.at(finished_.front())->finished_at() + kKeepFinished - now;
  forget_timer_ = reactor_.after(left, [this] { forget_finished(); });
}

void ProcessTable::erase(pid_t pid) {
  finished_.remove(pid);
  processes_.erase(pid);
}

void ProcessTable::watch_leaf(const std::string& leaf) {
  if (!users_ || leaf.empty() || users_->remove_leaf(leaf) || !inotify_) return;
  const int watch = ::inotify_add_watch(inotify_.get(), (users_->path_of(leaf) + "/cgroup.events").c_str(), IN_MODIFY);
  if (watch < 0) return;
  populated_leaves_[watch] = leaf;
  if (users_->remove_leaf(leaf)) populated_leaves_.erase(watch);  // emptied in between
}

void ProcessTable::on_leaf_events() {
  alignas(inotify_event) char buffer[4096];
  const ssize_t n = ::read(inotify_.get(), buffer, sizeof buffer);
  for (ssize_t at = 0; at + static_cast<ssize_t>(sizeof(inotify_event)) <= n;) {
    const inotify_event* event = reinterpret_cast<const inotify_event*>(buffer + at);
    at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    const auto it = populated_leaves_.find(event->wd);
    if (it == populated_leaves_.end() || !users_->remove_leaf(it->second)) continue;
    ::inotify_rm_watch(inotify_.get(), event->wd);
    populated_leaves_.erase(it);
  }
}

}  // namespace ramet::guest
