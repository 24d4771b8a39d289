#include "process.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "abi/frame.h"

namespace ramet::guest {
namespace {

constexpr uint32_t kMinRing = 64u << 10, kDefaultRing = 256u << 10, kMaxRing = 1u << 20;
constexpr Milliseconds kKillGrace{2000};
// After the leader's end a terminal's last bytes are still on their way through the line discipline.
constexpr Milliseconds kTerminalDrain{100};
constexpr char kEndOfTransmission = 4;

std::array<char, abi::kChunkBytes> read_buffer;  // never used across calls

size_t ring_size(uint32_t wanted) { return wanted == 0 ? kDefaultRing : std::clamp(wanted, kMinRing, kMaxRing); }

abi::ProcessInfo describe(const abi::Exec& exec, pid_t pid, const std::string& default_user) {
  constexpr size_t kMaxShownBytes = 4096;
  abi::ProcessInfo info;
  info.set_pid(static_cast<uint32_t>(pid));
  size_t shown = 0;
  for (const std::string& arg : exec.argv()) {
    if ((shown += arg.size() + 8) > kMaxShownBytes) break;
    info.add_argv(arg);
  }
  if (exec.argv_size() == 0 && !exec.shell().empty()) info.add_argv(exec.shell().substr(0, kMaxShownBytes));
  info.set_user(exec.user().empty() ? default_user : exec.user());
  info.set_tag(exec.tag().substr(0, 256));
  info.set_pty(exec.has_pty());
  info.set_started_ns(wall_ns());
  return info;
}

}  // namespace

Process::Process(Reactor& reactor, UserTasks* users, const abi::Exec& exec, Spawned spawned, const std::string& default_user)
    : reactor_(reactor),
      users_(users),
      pid_(spawned.pid),
      leaf_(std::move(spawned.leaf)),
      description_(describe(exec, spawned.pid, default_user)),
      terminal_(spawned.terminal.valid()),
      timeout_ms_(exec.timeout_ms()),
      start_status_(std::move(spawned.start_status)),
      ring_(ring_size(exec.output_buffer_bytes())),
      stdin_(std::move(spawned.stdin_end)),
      stdin_open_(terminal_ || stdin_.valid()),
      started_at_(MonotonicClock::now()) {
  if (terminal_) {
    streams_.push_back({1, std::move(spawned.terminal), {}});
  } else {
    streams_.push_back({1, std::move(spawned.stdout_end), {}});
    streams_.push_back({2, std::move(spawned.stderr_end), {}});
  }
  for (Stream& stream : streams_)
    stream.watch = reactor_.watch(stream.fd.get(), 0, [this, &stream](uint32_t events) {
      if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(stream);
      if (events & EPOLLOUT) flush_stdin();
    });
  if (stdin_) stdin_watch_ = reactor_.watch(stdin_.get(), 0, [this](uint32_t) { flush_stdin(); });
  start_watch_ = reactor_.watch(start_status_.get(), EPOLLIN, [this](uint32_t) { on_start_status(); });
}

// ---- start -------------------------------------------------------------------------------------------------------------

void Process::on_start_status() {
  StartFailure failure{};
  const ssize_t n = ::read(start_status_.get(), &failure, sizeof failure);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  start_watch_.reset();
  start_status_.reset();
  if (n == sizeof failure) {
    start_error_.set_code(static_cast<abi::ErrorCode>(failure.code));
    start_error_.set_message(std::string(failure.message, ::strnlen(failure.message, sizeof failure.message)));
    start_error_.set_sys_errno(failure.sys_errno);
    state_ = State::kFailed;  // its zombie is reaped with the others
    for (Stream& stream : streams_) close_stream(stream);
    close_stdin();
    finished_at_ = MonotonicClock::now();
    notify();
    if (on_over_) on_over_();
    return;
  }
  if (state_ != State::kStarting) return;
  state_ = State::kRunning;
  if (timeout_ms_ > 0)
    timer_ = reactor_.after(Milliseconds(std::min<uint64_t>(timeout_ms_, 1ull << 40)), [this] { on_timeout(); });
  update_reading();
  notify();
}

// ---- output ------------------------------------------------------------------------------------------------------------

void Process::add_follower(Follower* follower) {
  followers_.push_back(follower);
  update_reading();
}

void Process::remove_follower(Follower* follower) {
  std::erase(followers_, follower);
  update_reading();
}

bool Process::make_room() {
  OutputRing::Cursor keep_from = ring_.end();
  keep_from.piece++;  // nobody follows: everything may go
  for (const Follower* follower : followers_) keep_from = std::min(keep_from, follower->cursor);
  return ring_.make_room(keep_from);
}

void Process::update_reading() {
  const bool room = !ring_.full() || make_room();
  for (Stream& stream : streams_) {
    const uint32_t write_interest = terminal_ && !stdin_queue_.empty() ? EPOLLOUT : 0u;
    if (stream.fd) stream.watch.set_events((room && state_ != State::kStarting ? EPOLLIN : 0u) | write_interest);
  }
  if (state_ == State::kEnded && room && !notifying_) drain_after_end();
}

void Process::on_readable(Stream& stream) {
  read_stream(stream);  // the reactor's copy of the handler outlives a closed watch
  notify();
  update_reading();
}

// One read; at the end of the stream it is closed.
void Process::read_stream(Stream& stream) {
  if (!stream.fd || (ring_.full() && !make_room())) return;
  const ssize_t n = ::read(stream.fd.get(), read_buffer.data(), read_buffer.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return close_stream(stream);  // EIO from a terminal: its last user is gone
  ring_.append(stream.fd_number, std::string_view(read_buffer.data(), static_cast<size_t>(n)));
}

void Process::close_stream(Stream& stream) {
  stream.watch.reset();
  stream.fd.reset();
}

void Process::notify() {
  if (notifying_) return;
  notifying_ = true;
  const std::vector<Follower*> followers = followers_;
  for (Follower* follower : followers)
    if (std::find(followers_.begin(), followers_.end(), follower) != followers_.end()) follower->on_progress();
  notifying_ = false;
}

// ---- input -------------------------------------------------------------------------------------------------------------

Status Process::write_stdin(std::string_view bytes, bool eof) {
  if (!stdin_open_ || stdin_eof_queued_)
    return fail(ErrorKind::kConflict, "the standard input of process " + std::to_string(pid_) + " is closed");
  stdin_queue_.append(bytes);
  if (eof && terminal_) stdin_queue_.push_back(kEndOfTransmission);
  if (eof && !terminal_) stdin_eof_queued_ = true;
  flush_stdin();
  return {};
}

void Process::when_stdin_drained(std::function<void()> callback) {
  if (stdin_queue_.empty()) return callback();
  stdin_waiters_.push_back(std::move(callback));
}

void Process::flush_stdin() {
  while (!stdin_queue_.empty()) {
    const ssize_t n = ::write(input_fd(), stdin_queue_.data(), stdin_queue_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return close_stdin();  // nobody reads any more
    stdin_queue_.erase(0, static_cast<size_t>(n));
  }
  if (terminal_)
    update_reading();
  else if (stdin_)
    stdin_watch_.set_events(stdin_queue_.empty() ? 0u : EPOLLOUT);
  if (!stdin_queue_.empty()) return;
  if (stdin_eof_queued_) return close_stdin();
  std::vector<std::function<void()>> waiters;
  waiters.swap(stdin_waiters_);
  for (const std::function<void()>& waiter : waiters) waiter();
}

void Process::close_stdin() {
  stdin_open_ = false;
  stdin_queue_.clear();
  stdin_queue_.shrink_to_fit();
  stdin_watch_.reset();
  stdin_.reset();
  std::vector<std::function<void()>> waiters;
  waiters.swap(stdin_waiters_);
  for (const std::function<void()>& waiter : waiters) waiter();
}

// ---- control -----------------------------------------------------------------------------------------------------------

Status Process::signal(int sig, bool leader_only) {
  if (state_ != State::kStarting && state_ != State::kRunning)
    return fail(ErrorKind::kConflict, "process " + std::to_string(pid_) + " has already ended");
  // Before its setsid() the leader has no group of its own; then it is alone anyway.
  if (!leader_only && ::kill(-pid_, sig) == 0) return {};
  if (::kill(pid_, sig) < 0) return fail_errno("signal process " + std::to_string(pid_));
  return {};
}

Status Process::resize(const abi::WindowSize& size) {
  if (!terminal_) return fail(ErrorKind::kInvalid, "process " + std::to_string(pid_) + " has no terminal");
  if (!streams_[0].fd) return fail(ErrorKind::kConflict, "process " + std::to_string(pid_) + " has already ended");
  return set_window_size(streams_[0].fd.get(), size);
}

void Process::on_timeout() {
  if (state_ != State::kRunning) return;
  if (timed_out_) return kill_everything();
  timed_out_ = true;
  (void)signal(SIGTERM, false).has_value();
  timer_ = reactor_.after(kKillGrace, [this] { on_timeout(); });
}

void Process::kill_everything() {
  ::kill(-pid_, SIGKILL);  // safe: called only while the leader is not reaped, so the number is still its group's
  if (users_ && !leaf_.empty()) (void)users_->kill_leaf(leaf_).has_value();
}

// ---- end ---------------------------------------------------------------------------------------------------------------

void Process::on_leader_exit(int wait_status) {
  if (timed_out_) kill_everything();
  timer_.cancel();
  if (state_ == State::kStarting) on_start_status();  // it may have failed to start, or have been very quick
  if (state_ == State::kFailed) return;
  wait_status_ = wait_status;
  state_ = State::kEnded;
  finished_at_ = MonotonicClock::now();
  if (terminal_) timer_ = reactor_.after(kTerminalDrain, [this] { on_terminal_quiet(); });
  for (Stream& stream : streams_) {
    int unread = 0;
    if (stream.fd) ::ioctl(stream.fd.get(), FIONREAD, &unread);
    stream.drained_at = ring_.written(stream.fd_number) + static_cast<uint64_t>(unread);
  }
  drain_after_end();
}

// The end of the command is not the end of its pipes: daemons it left behind may hold them and write for ever. So exactly what
// was in them when the leader ended is read before the command counts as finished. A terminal ends by itself or by its timer.
void Process::drain_after_end() {
  bool drained = true;
  for (Stream& stream : streams_) {
    while (stream.fd && (terminal_ || ring_.written(stream.fd_number) < stream.drained_at)) {
      const uint64_t before = ring_.written(stream.fd_number);
      read_stream(stream);
      if (ring_.written(stream.fd_number) == before) break;
      notify();
    }
    drained = drained && (!stream.fd || (!terminal_ && ring_.written(stream.fd_number) >= stream.drained_at));
  }
  if (drained) finish();
}

void Process::on_terminal_quiet() {
  if (!ring_.full() || make_room()) return finish();
  timer_ = reactor_.after(kTerminalDrain, [this] { on_terminal_quiet(); });
}

void Process::finish() {
  if (state_ != State::kEnded) return;
  timer_.cancel();
  state_ = State::kFinished;
  close_stdin();
  update_reading();  // survivors may go on writing
  notify();
  if (on_over_) on_over_();
}

abi::Exit Process::exit() const {
  abi::Exit exit;
  if (WIFEXITED(wait_status_)) exit.set_code(static_cast<uint32_t>(WEXITSTATUS(wait_status_)));
  if (WIFSIGNALED(wait_status_)) exit.set_signal(static_cast<uint32_t>(WTERMSIG(wait_status_)));
  exit.set_timed_out(timed_out_);
  exit.set_duration_ns(static_cast<uint64_t>(Nanoseconds(finished_at_ - started_at_).count()));
  return exit;
}

abi::ProcessInfo Process::info() const {
  abi::ProcessInfo info = description_;
  info.set_running(state_ == State::kStarting || state_ == State::kRunning);
  if (state_ == State::kEnded || state_ == State::kFinished) *info.mutable_exit() = exit();
  info.set_stdout_bytes(ring_.written(1));
  info.set_stderr_bytes(ring_.written(2));
  info.set_attached(static_cast<uint32_t>(followers_.size()));
  return info;
}

}  // namespace ramet::guest
