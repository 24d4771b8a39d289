#include "vmm/control/client.h"

#include <poll.h>
#include <sys/socket.h>

#include "base/file.h"
#include "base/socket.h"

namespace ramet::vmm::control {
namespace {

tl::unexpected<Error> wrong_answer(const char* what) {
  return fail(ErrorKind::kCorrupt, std::string("the monitor's answer to ") + what + " is of another kind");
}

}  // namespace

Result<std::unique_ptr<Client>> Client::connect(const std::string& path, OnEvent on_event, OnClosed on_closed) {
  TRY_ASSIGN(UniqueFd fd, connect_unix(path, SOCK_SEQPACKET));
  return adopt(std::move(fd), std::move(on_event), std::move(on_closed));
}

std::unique_ptr<Client> Client::adopt(UniqueFd connection, OnEvent on_event, OnClosed on_closed) {
  return std::unique_ptr<Client>(new Client(std::move(connection), std::move(on_event), std::move(on_closed)));
}

Client::Client(UniqueFd connection, OnEvent on_event, OnClosed on_closed)
    : connection_(std::move(connection)), on_event_(std::move(on_event)), on_closed_(std::move(on_closed)) {
  Result<Pipe> pipe = make_pipe();
  if (pipe) {
    stop_read_ = std::move(pipe->read_end);
    stop_write_ = std::move(pipe->write_end);
  }
  reader_ = std::thread([this] { read_loop(); });
}

Client::~Client() {
  ::shutdown(connection_.get(), SHUT_RDWR);
  stop_write_.reset();
  reader_.join();
}

void Client::read_loop() {
  for (;;) {
    pollfd fds[2] = {{connection_.get(), POLLIN, 0}, {stop_read_.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno == EINTR) continue;
    if (fds[1].revents) break;
    FromVmm message;
    Result<ReceivedFds> received = receive(connection_.get(), message, MonotonicClock::now());
    if (!received && received.error().kind() == ErrorKind::kTimeout) continue;
    if (!received) break;
    deliver(std::move(message), *std::move(received));
  }
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  answered_.notify_all();
  if (on_closed_) on_closed_();
}

void Client::deliver(FromVmm message, ReceivedFds fds) {
  if (message.has_event()) {
    if (on_event_) on_event_(message.event());
    return;
  }
  const std::lock_guard lock(mutex_);
  const auto it = calls_.find(message.response().id());
  if (it == calls_.end() || it->second) return;  // nobody waits (any more)
  it->second = std::make_unique<Answer>(Answer{std::move(*message.mutable_response()), std::move(fds)});
  answered_.notify_all();
}

Result<Client::Answer> Client::call(Request request, std::span<const int> fds, Deadline deadline) {
  uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return fail(ErrorKind::kUnavailable, "the monitor's control connection is closed");
    id = next_id_++;
    calls_[id] = nullptr;
  }
  request.set_id(id);
  Status sent = [&] {
    const std::lock_guard lock(send_mutex_);
    return send(connection_.get(), request, fds, deadline);
  }();
  std::unique_lock lock(mutex_);
  if (!sent) {
    calls_.erase(id);
    return tl::unexpected<Error>(std::move(sent).error());
  }
  answered_.wait_until(lock, deadline, [&] { return closed_ || calls_[id] != nullptr; });
  const std::unique_ptr<Answer> answer = std::move(calls_[id]);
  calls_.erase(id);
  if (!answer && closed_) return fail(ErrorKind::kUnavailable, "the monitor ended or broke the protocol");
  if (!answer) return fail(ErrorKind::kTimeout, "the monitor did not answer in time");
  if (answer->response.has_failure()) return tl::unexpected<Error>(from_failure(answer->response.failure()));
  return std::move(*answer);
}

Status Client::call_for_ok(Request request, Deadline deadline, std::span<const int> fds) {
  TRY_ASSIGN(const Answer answer, call(std::move(request), fds, deadline));
  if (!answer.response.has_ok()) return wrong_answer("a command");
  return {};
}

Status Client::ping(Deadline deadline) {
  Request r;
  r.mutable_ping();
  return call_for_ok(std::move(r), deadline);
}

Result<UniqueFd> Client::connect_guest(uint32_t port, Milliseconds limit) {
  Request r;
  r.mutable_connect()->set_port(port);
  r.mutable_connect()->set_deadline_ms(static_cast<uint32_t>(limit.count()));
  // The monitor watches the deadline; a little more, so that its answer wins.
  TRY_ASSIGN(Answer answer, call(std::move(r), {}, deadline_after(limit + Milliseconds(500))));
  if (!answer.response.has_connected()) return wrong_answer("connect");
  return answer.fds.take(answer.response.connected().stream_fd(), "stream");
}

Result<Client::ForkAnswer> Client::fork(const Fork& fork, std::span<const int> fds, Deadline deadline) {
  Request r;
  *r.mutable_fork() = fork;
  TRY_ASSIGN(Answer answer, call(std::move(r), fds, deadline));
  if (!answer.response.has_forked()) return wrong_answer("fork");
  ForkAnswer out{std::move(*answer.response.mutable_forked()), {}};
  if (out.forked.children_size() != fork.children_size()) return wrong_answer("fork");
  for (int i = 0; i < out.forked.children_size(); i++) {
    const ForkedChild& child = out.forked.children(i);
    if (child.sandbox_id() != fork.children(i).sandbox_id()) return wrong_answer("fork");
    UniqueFd pidfd;
    if (!child.has_failure()) {
      TRY_ASSIGN(pidfd, answer.fds.take(child.pidfd(), "pidfd"));
    }
    out.pidfds.push_back(std::move(pidfd));
  }
  return out;
}

Result<Captured> Client::capture(int vmstate_fd, int even_fd, int odd_fd, Deadline deadline) {
  Request r;
  FdsToSend fds;
  r.mutable_capture()->set_vmstate_fd(fds.add(vmstate_fd));
  r.mutable_capture()->set_memory_even_fd(fds.add(even_fd));
  r.mutable_capture()->set_memory_odd_fd(fds.add(odd_fd));
  TRY_ASSIGN(Answer answer, call(std::move(r), fds.fds(), deadline));
  if (!answer.response.has_captured()) return wrong_answer("capture");
  return std::move(*answer.response.mutable_captured());
}

Status Client::power_button(Deadline deadline) {
  Request r;
  r.mutable_power_button();
  return call_for_ok(std::move(r), deadline);
}
Status Client::stop(Deadline deadline) {
  Request r;
  r.mutable_stop();
  return call_for_ok(std::move(r), deadline);
}
Status Client::pause(Deadline deadline) {
  Request r;
  r.mutable_pause();
  return call_for_ok(std::move(r), deadline);
}
Status Client::resume(Deadline deadline) {
  Request r;
  r.mutable_resume();
  return call_for_ok(std::move(r), deadline);
}

Result<Stats> Client::stats(Deadline deadline) {
  Request r;
  r.mutable_get_stats();
  TRY_ASSIGN(Answer answer, call(std::move(r), {}, deadline));
  if (!answer.response.has_stats()) return wrong_answer("stats");
  return std::move(*answer.response.mutable_stats());
}

Status Client::attach_base(const std::string& disk_id, int chunk_fd, Deadline deadline) {
  Request r;
  FdsToSend fds;
  r.mutable_attach_base()->set_disk_id(disk_id);
  r.mutable_attach_base()->set_chunk_fd(fds.add(chunk_fd));
  return call_for_ok(std::move(r), deadline, fds.fds());
}

Status Client::debug_push(std::span<const uint32_t> words, Deadline deadline) {
  Request r;
  for (const uint32_t w : words) r.mutable_debug_push()->add_words(w);
  return call_for_ok(std::move(r), deadline);
}

}  // namespace ramet::vmm::control
