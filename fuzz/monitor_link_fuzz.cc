// A hostile monitor against the daemon: its answer on a bootstrap socket, and answers, events and descriptors on the control
// link of a machine. The monitor's part is played by the watcher's thread of this process: to the daemon the packets come from
// the process it knows. The input is a program: what the daemon asks, and what it hears.
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <memory>

#include "base/log.h"
#include "descriptors.h"
#include "host/agent_client.h"
#include "host/machine.h"
#include "host/monitor_link.h"

namespace ramet::host {
namespace {

constexpr auto kAtOnce = MonotonicClock::time_point{};
constexpr Milliseconds kNeverReached{60'000};

void check(bool good) {
  if (!good) std::abort();
}

// Short enough for a log and an answer of the API.
void check_error(const Error& error) { check(error.message().size() <= 2048); }

struct Process {
  Process() : watcher(*Watcher::start()), path("\0ramet-monitor-link-fuzz-", 25), start_time(*process_start_time(::getpid())) {
    path += std::to_string(::getpid());  // an abstract name: no file stays behind
    listener = *listen_unix(path, SOCK_SEQPACKET, 4);
    log_init("fuzz", "", static_cast<LogLevel>(static_cast<int>(LogLevel::kError) + 1));
  }
  std::unique_ptr<Watcher> watcher;
  std::string path;
  UniqueFd listener;
  uint64_t start_time;
};

// What the monitor says when it is asked next.
struct Script {
  std::vector<ForeignPacket> packets;
  bool hangs_up = false;
};

// Accepts one link, answers its Ping, then follows scripts. Always answers or hangs up, so that no call waits for its deadline.
class Monitor {
 public:
  explicit Monitor(Process& process) : watcher_(*process.watcher), listener_(process.listener.get()) {
    accepting_ = *watcher_.watch(listener_, [this] { accept(); });
  }
  ~Monitor() {
    watcher_.unwatch(accepting_);  // from here on only serve() may run
    watcher_.unwatch([this] {
      const std::lock_guard lock(mutex_);
      return serving_;
    }());
  }
  void next(Script script) {
    const std::lock_guard lock(mutex_);
    script_ = std::move(script);
  }
  // Unasked.
  void say(const ForeignPacket& packet) {
    const std::lock_guard lock(mutex_);
    if (connection_) packet.send(connection_.get());
  }

 private:
  void accept() {
    const std::lock_guard lock(mutex_);
    Result<UniqueFd> fd = accept_unix(listener_, kAtOnce);
    if (!fd) return;
    connection_ = *std::move(fd);
    serving_ = *watcher_.watch(connection_.get(), [this] { serve(); });
  }
  void serve() {
    const std::lock_guard lock(mutex_);
    vmm::Request request;
    if (!connection_) return;
    const Result<ReceivedFds> received = vmm::control::receive(connection_.get(), request, kAtOnce);
    if (!received) return hang_up();
    check(request.id() != 0);
    bool answered = false;
    for (const ForeignPacket& packet : script_.packets) {
      vmm::FromVmm message;
      const bool sent = packet.send(connection_.get());
      answered |=
          sent && message.ParseFromString(packet.bytes) && message.has_response() && message.response().id() == request.id();
    }
    if (!answered || script_.hangs_up) hang_up();
  }
  void hang_up() {
    watcher_.unwatch(serving_);
    connection_.reset();
  }

  Watcher& watcher_;
  const int listener_;
  uint64_t accepting_ = 0;
  std::mutex mutex_;  // guards all below
  uint64_t serving_ = 0;
  UniqueFd connection_;
  Script script_;
};

Script read_script(FuzzInput& in, ForeignFds& fds) {
  Script script;
  for (uint32_t left = in.upto(3); left > 0; left--) script.packets.push_back(ForeignPacket::read(in, fds));
  script.hangs_up = in.rarely(10);
  return script;
}

ForeignPacket ok(uint64_t id) {
  vmm::FromVmm message;
  message.mutable_response()->set_id(id);
  message.mutable_response()->mutable_ok();
  return {message.SerializeAsString(), {}};
}

Machine::Options options(Process& process) { return {*process.watcher, "fuzz", process.path, {}, {}}; }

// Never with a process of its own: the daemon would end it.
void bootstrap(Process& process, FuzzInput& in) {
  ForeignFds fds;
  BootstrapPair pair = *make_bootstrap_pair();
  ForeignPacket::read(in, fds).send(pair.theirs.get());
  if (in.rarely(4)) pair.theirs.reset();
  if (in.coin()) {
    const int handed = fds.get(static_cast<uint8_t>(in.upto(10)));
    check(!Machine::join_child(options(process), pair.ours.get(), UniqueFd(::dup(handed)), kAtOnce));
    return;
  }
  const Result<ReadyReport> report = await_ready(pair.ours.get(), kAtOnce);
  if (!report) return check_error(report.error());
  check(report->sender == ::getpid());
  const vmm::Ready& ready = report->ready;
  check(std::isfinite(ms_between(monotonic_ns(), ready.running_at_ns())));
  check(std::isfinite(ms_between(ready.running_at_ns(), monotonic_ns())));
  (void)send_commit(pair.ours.get());
}

vmm::Request question(FuzzInput& in) {
  vmm::Request r;
  switch (in.upto(4)) {
    case 0: r.mutable_ping(); break;
    case 1: r.mutable_get_stats(); break;
    case 2: r.mutable_capture(); break;
    case 3: r.mutable_stop(); break;
    default: r.mutable_fork(); break;
  }
  return r;
}

// What the daemon does with an answer, whatever it asked.
void use(MonitorReply& reply) {
  vmm::Response& r = reply.response;
  check(!r.has_failure());
  for (const vmm::ForkedChild& child : r.forked().children()) {
    if (child.has_failure()) {
      check_error(error_of(child.failure()));
      continue;
    }
    const Result<UniqueFd> pidfd = reply.fds.take(child.pidfd(), "pidfd");
    if (pidfd) check(pid_of_pidfd(pidfd->get()) == 0);
  }
  check(std::isfinite(ms_between(r.forked().stopped_at_ns(), r.forked().resumed_at_ns())));
}

void talk(FuzzInput& in, ForeignFds& fds, Monitor& monitor, Machine& machine) {
  for (int left = 32; left > 0 && !in.empty(); left--) {
    const uint32_t what = in.upto(5);
    if (what == 0) {
      monitor.say(ForeignPacket::read(in, fds));
      continue;
    }
    monitor.next(read_script(in, fds));
    if (what == 1) {
      const Result<UniqueFd> stream = machine.agent_stream(deadline_after(kNeverReached));
      if (!stream) check_error(stream.error());
      continue;
    }
    Result<MonitorReply> reply = machine.call(question(in), {}, deadline_after(kNeverReached));
    if (reply)
      use(*reply);
    else
      check_error(reply.error());
  }
  (void)machine.wait_first_word(kAtOnce);
  check(machine.alive() && !machine.end());
}

void link(Process& process, FuzzInput& in) {
  ForeignFds fds;
  Monitor monitor(process);
  Script first = in.rarely(8) ? read_script(in, fds) : Script{{ok(1)}};
  const bool right = !in.rarely(16);
  const bool known = in.coin();
  monitor.next(std::move(first));
  if (!right || !known) {
    const pid_t expected = right ? 0 : 1;
    const auto link = MonitorLink::connect(*process.watcher, process.path, expected, {}, deadline_after(kNeverReached));
    if (!link) return check_error(link.error());
    check(right && (*link)->pid() == ::getpid());
    return;
  }
  const MachineFacts facts{.id = "fuzz", .pid = ::getpid(), .pid_start = process.start_time};
  const auto machine = Machine::adopt(options(process), facts, deadline_after(kNeverReached));
  if (machine) talk(in, fds, monitor, **machine);
}

}  // namespace
}  // namespace ramet::host

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ramet;
  static host::Process process;
  const int before = count_open_descriptors();
  FuzzInput in(data, size);
  const std::string text = in.rarely(50) ? in.bytes(1000) : std::string();
  if (host::printable(text, 100).size() > 100) std::abort();
  if (in.rarely(3))
    host::bootstrap(process, in);
  else
    host::link(process, in);
  if (count_open_descriptors() != before) std::abort();
  return 0;
}
