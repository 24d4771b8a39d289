// A hostile daemon against a monitor: its Bootstrap packet, or requests, commands and a ChildSetup for a monitor whose machine
// has RAM, a disk and devices but no VM. The input is a program: one byte says what happens next, the bytes behind it how.
#include <cstdlib>

#include "base/log.h"
#include "descriptors.h"
#include "vmm/disk_setup.h"
#include "vmm/monitor.h"

namespace ramet::vmm {
namespace {

constexpr uint64_t kDiskBytes = 64 * 4096;
constexpr auto kAtOnce = MonotonicClock::time_point{};

void check(bool good) {
  if (!good) std::abort();
}

void be_quiet() { log_init("fuzz", "", static_cast<LogLevel>(static_cast<int>(LogLevel::kError) + 1)); }

OverlayDescriptors new_overlay(const std::string& id, bool writable) {
  const UniqueFd data = *make_memfd("data", 0), log = *make_memfd("log", 0);
  OverlayDescriptors o{id, {}, *reopen(data.get(), O_RDONLY), {}, *reopen(log.get(), O_RDONLY)};
  if (writable) o.data_rw = *reopen(data.get(), O_RDWR);
  if (writable) o.log_rw = *reopen(log.get(), O_RDWR);
  return o;
}

// The first packet of all. No descriptor is a KVM, so the monitor must fail, and say so if it understood what it was asked for.
void bootstrap(FuzzInput& in) {
  ForeignFds fds;
  SocketPair pair = *make_socket_pair(SOCK_SEQPACKET);
  check(ForeignPacket::read(in, fds).send(pair.a.get()) || ::shutdown(pair.a.get(), SHUT_WR) == 0);
  Monitor monitor(*EventLoop::create());
  const Status started = monitor.start(std::move(pair.b));
  check(!started);
  BootstrapReply reply;
  const Result<control::ReceivedFds> told = control::receive(pair.a.get(), reply, kAtOnce);
  if (told) check(reply.has_failed() && reply.failed().message() == started.error().message());
}

}  // namespace

class MonitorPeer {
 public:
  explicit MonitorPeer(FuzzInput& in) : in_(in), monitor_(*EventLoop::create()) {
    DiskDescription disk{.id = "vda", .size_bytes = kDiskBytes};
    const uint32_t frozen = in.upto(4);
    if (frozen == 4) disk.chunks = std::move(make_socket_pair(SOCK_SEQPACKET)->a);  // to a daemon that is gone
    for (uint32_t i = frozen; i > 0; i--) disk.frozen.push_back(new_overlay("f" + std::to_string(i), false));
    if (in.coin()) disk.writable = new_overlay("w", true);
    Machine::Parts parts;
    if (!in.rarely(10)) parts.disk = *Disk::open(std::move(disk));
    parts.ram = *GuestRam::boot(2 << 20);
    monitor_.machine_ = *Machine::create(std::move(parts), {.debug_port = in.coin()}, *monitor_.loop_, {});
    listener_ = listen_unnamed();
    check(monitor_.server_.listen(UniqueFd(::dup(listener_.get()))).has_value());
  }

  void run() {
    while (!in_.empty() && !over_ && !monitor_.exit_code_) step();
  }

 private:
  void step() {
    switch (in_.upto(11)) {
      case 0: connect(); break;
      case 1: client_.reset(); break;
      case 2: reads_ = !reads_; break;
      case 3: flood(); break;
      case 4: command(); break;
      case 5: become_child(); break;
      case 6: event(); break;
      default: request(); break;
    }
    turn();
  }

  void connect() { client_ = connect_to(listener_.get()); }
  void request() {
    if (!client_) connect();
    const uint32_t packets = 1 + in_.upto(2);
    for (uint32_t i = 0; i < packets && client_; i++) ForeignPacket::read(in_, fds_).send(client_.get());
  }
  void flood() {
    const ForeignPacket packet = ForeignPacket::read(in_, fds_);
    for (uint32_t left = in_.upto(255); left > 0 && client_; left--) {
      packet.send(client_.get());
      if (left % 16 == 0) monitor_.loop_->run_once(kAtOnce);
    }
  }
  void event() {
    Event e;
    e.mutable_debug_port()->set_value(in_.number<uint32_t>());
    for (uint32_t left = in_.upto(100); left > 0; left--) monitor_.server_.send_event(e);
  }
  // Commit, or something else, or a hang-up on the bootstrap socket.
  void command() {
    if (monitor_.bootstrap_) return;
    SocketPair pair = *make_socket_pair(SOCK_SEQPACKET);
    monitor_.bootstrap_ = std::move(pair.b);
    check(monitor_.watch_bootstrap().has_value());
    ForeignPacket::read(in_, fds_).send(pair.a.get());
    turn();
    turn();
    check(!monitor_.bootstrap_ || monitor_.exit_code_);
  }
  // The steps of a forked child, without the fork and without a VM.
  void become_child() {
    if (monitor_.machine_->disk() && !monitor_.machine_->disk()->drop_overlay()) return;
    monitor_.server_.after_fork();
    check(monitor_.loop_->after_fork().has_value());
    monitor_.machine_->use_loop(*monitor_.loop_);
    client_.reset();
    SocketPair pair = *make_socket_pair(SOCK_SEQPACKET);
    ForeignPacket::read(in_, fds_).send(pair.a.get());
    ChildSetup setup;
    Result<control::ReceivedFds> received = control::receive(pair.b.get(), setup, kAtOnce);
    over_ = !received || !monitor_.adopt_setup(setup, *received);
    listener_ = UniqueFd(::dup(fds_.get(ForeignFds::kListener)));
    be_quiet();
  }

  void turn() {
    for (int i = 0; i < 2; i++) {
      monitor_.loop_->run_once(kAtOnce);
      if (monitor_.fork_) fork();
    }
    while (client_ && reads_) {
      FromVmm message;
      const Result<control::ReceivedFds> answer = control::receive(client_.get(), message, kAtOnce);
      if (!answer) {
        check(answer.error().kind() != ErrorKind::kCorrupt);
        if (answer.error().kind() != ErrorKind::kTimeout) client_.reset();
        break;
      }
      check(message.has_event() || (message.has_response() && message.response().id() != 0));
    }
    const Stats stats = monitor_.stats();
    check(stats.frozen_overlays_size() <= static_cast<int>(image::OverlayStack::kMaxLayers));
  }
  // All of a fork but the fork.
  void fork() {
    Monitor::ForkPlan plan = *std::move(monitor_.fork_);
    monitor_.fork_.reset();
    check(!plan.children.empty() && plan.children.size() <= 100);
    check(static_cast<int>(plan.children.size()) == plan.answer.children_size());
    plan.was_standing = true;
    const Status frozen = monitor_.freeze_disk(plan);
    if (!frozen) return monitor_.server_.respond_error(plan.ticket, frozen.error());
    monitor_.parent_goes_on(plan);
    monitor_.note_resumed(plan);
    Response response;
    *response.mutable_forked() = std::move(plan.answer);
    monitor_.server_.respond(plan.ticket, std::move(response), {});
  }

  FuzzInput& in_;
  ForeignFds fds_;
  UniqueFd listener_, client_;
  Monitor monitor_;
  bool reads_ = true;
  bool over_ = false;  // the process would have ended
};

}  // namespace ramet::vmm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ramet;
  vmm::be_quiet();
  const int before = count_open_descriptors();
  FuzzInput in(data, size);
  if (in.coin()) {
    vmm::bootstrap(in);
  } else {
    vmm::MonitorPeer peer(in);
    peer.run();
  }
  if (count_open_descriptors() != before) std::abort();
  return 0;
}
