// fork_floor - what a fork of a VM costs at least on this machine: the same memory map, dirty pages and generation depth as
// ramet-vmm's, the same guest, the same KVM calls; no devices, no threads, no policy. bench_fork runs both in turn.
//
// Usage: fork_floor SOCKET_FD RAM_MIB FILL_START_MIB FILL_MIB GUEST_ELF   (started by bench_fork; FILL = part of the base that
// is not zero)
//
// The road is the monitor's: boot the guest in anonymous memory, move what is not zero into two memfds, drop that VM, map the
// base privately, fork the machine that is measured (generation 1) and from it the children. The process that maps holds no
// page.
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "bare_vm.h"
#include "die.h"
#include "guests/lib/protocol.h"
#include "protocol.h"

using namespace ramet;
using namespace ramet::bench;

namespace {

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

class Floor {
 public:
  Floor(int socket, uint64_t ram_bytes) : socket_(socket), ram_bytes_(ram_bytes) {}

  void boot_and_seal(const std::string& elf, uint64_t fill_start, uint64_t fill_bytes) {
    Ram booting(ram_bytes_);
    BareVm vm(system_, booting);
    vm.boot(elf);
    if (guests::kind_of(vm.run().word) != guests::kReady) die("the guest did not start");
    if (!vm.run().is_input) die("the guest does not wait for a word");
    vm.answer(0);  // as after a park
    vm.settle();
    vm.save(state_);
    for (uint64_t at = 0; at < fill_bytes; at += kBlockBytes) booting.data()[fill_start + at] = 1;
    base_ = booting.seal();
  }

  // The zygote: maps the base and forks the machine to be measured, again after each kRestart. Returns only in that machine.
  void become_child_of_zygote() {
    ram_ = std::make_unique<Ram>(ram_bytes_, base_);
    for (;;) {
      pid_t pid = check(fork(), "fork");
      if (pid == 0) break;
      int code = exit_code_of(pid);
      if (code != kRestartCode) _exit(code);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    start_inherited();
  }

  void serve() {
    send(FloorReply{.event = FloorEvent::kReady});
    for (;;) {
      FloorRequest request;
      if (recv(socket_, &request, sizeof request, 0) != static_cast<ssize_t>(sizeof request)) return;
      switch (request.op) {
        case FloorOp::kWord:
          vm_->answer(request.word);
          send(FloorReply{.event = FloorEvent::kAnswer, .word = run_to_input()});
          break;
        case FloorOp::kFork: fork_child(); break;
        case FloorOp::kEndChildren:
          end_children();
          send(FloorReply{.event = FloorEvent::kEnded});
          break;
        case FloorOp::kDescend: descend(); break;
        case FloorOp::kRestart: end_children(); _exit(kRestartCode);
      }
    }
  }

 private:
  static constexpr int kRestartCode = 10;

  static int exit_code_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }

  void send(const FloorReply& reply) const {
    if (::send(socket_, &reply, sizeof reply, MSG_NOSIGNAL) < 0) _exit(1);
  }

  // Runs until the guest waits again; returns the last word it wrote.
  uint32_t run_to_input() {
    uint32_t word = 0;
    for (;;) {
      BareVm::Exit exit = vm_->run();
      if (exit.is_input) return word;
      word = exit.word;
    }
  }

  void park() {
    vm_->answer(0);
    vm_->settle();
    vm_->save(state_);
  }

  void start_inherited() {
    vm_.reset();  // closes what the parent had
    vm_ = std::make_unique<BareVm>(system_, *ram_);
    vm_->restore(state_);
    run_to_input();
  }

  void fork_child() {
    uint64_t start = now_ns();
    park();
    uint64_t before = now_ns();
    pid_t pid = check(fork(), "fork");
    if (pid == 0) child_runs();
    uint64_t after = now_ns();
    children_.push_back(pid);
    const FloorReply reply{.event = FloorEvent::kForked, .stop_ns = after - start, .fork_ns = after - before};
    run_to_input();
    send(reply);
  }

  [[noreturn]] void child_runs() {
    uint64_t forked = now_ns();
    vm_.reset();
    vm_ = std::make_unique<BareVm>(system_, *ram_);
    uint64_t created = now_ns();
    vm_->restore(state_);
    uint64_t restored = now_ns();
    BareVm::Exit exit = vm_->run();
    uint64_t first_exit = now_ns();
    send(FloorReply{.event = FloorEvent::kChildRuns,
                    .word = exit.word,
                    .create_ns = created - forked,
                    .restore_ns = restored - created,
                    .at_ns = first_exit});
    for (;;) pause();
  }

  void end_children() {
    for (pid_t pid : children_) kill(pid, SIGKILL);
    for (pid_t pid : children_) waitpid(pid, nullptr, 0);
    children_.clear();
  }

  // One generation deeper; the ancestors stay alive and wait.
  void descend() {
    park();
    pid_t pid = check(fork(), "fork");
    if (pid != 0) _exit(exit_code_of(pid));
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    children_.clear();
    start_inherited();
    send(FloorReply{.event = FloorEvent::kReady});
  }

  int socket_;
  uint64_t ram_bytes_;
  KvmSystem system_;
  BaseImage base_;
  std::unique_ptr<Ram> ram_;
  VmState state_;
  std::unique_ptr<BareVm> vm_;  // after ram_: closed before the memory goes
  std::vector<pid_t> children_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: fork_floor SOCKET_FD RAM_MIB FILL_START_MIB FILL_MIB GUEST_ELF\n");
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Floor floor(std::atoi(argv[1]), std::strtoull(argv[2], nullptr, 10) * kMiB);
  floor.boot_and_seal(argv[5], std::strtoull(argv[3], nullptr, 10) * kMiB, std::strtoull(argv[4], nullptr, 10) * kMiB);
  floor.become_child_of_zygote();
  floor.serve();
  return 0;
}
