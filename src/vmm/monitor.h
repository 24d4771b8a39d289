// vmm/monitor.h - the process around one machine: bootstrap, main loop, requests of the daemon, fork, end.
//
//   started --Bootstrap--> booting --> running | zygote (image mapped, executes nothing)
//   forked  --ChildSetup--> restoring --> running          any failure before Ready: Failed, exit 1
//                      '--> frozen: memory at one instant, until the bootstrap socket hangs up
//   before Commit: hang-up of the bootstrap socket = exit        after Commit: lives on its listening socket
//
// A fork is done by the main loop, never inside a callback: the child goes on in the same loop with fresh insides, so that the
// stack does not grow from generation to generation.
// Thread: the event loop's; machine callbacks come from vCPU threads and are posted to it. Owner: main.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "kvm/kvm.h"
#include "vmm/control/codec.h"
#include "vmm/control/server.h"
#include "vmm/event_loop.h"
#include "vmm/fork.h"
#include "vmm/machine.h"

namespace ramet::vmm {

class Monitor {
 public:
  explicit Monitor(std::unique_ptr<EventLoop> loop);
  ~Monitor();

  // Reads Bootstrap from the socket, builds the machine, answers Ready. An error was reported as Failed already.
  Status start(UniqueFd bootstrap_socket);
  // Until the machine ends, or the daemon ends it. The exit code.
  int run();

 private:
  friend class MonitorPeer;  // fuzz/control_fuzz.cc: a machine without a VM
  struct ForkPlan {
    control::Server::Ticket ticket;
    struct Child {
      std::string id;
      UniqueFd bootstrap;
    };
    std::vector<Child> children;
    std::optional<OverlayDescriptors> next_overlay;  // the parent's, used only if the present one is frozen
    Milliseconds quiesce_limit{};
    Forked answer;  // times so far
    bool was_standing = false;
    int64_t fork_end_ns = 0;
  };

  enum class Side { kParent, kChild };

  // start (monitor_start.cc)
  Status build_from(const Bootstrap& bootstrap, control::ReceivedFds& fds);
  Status build_from_kernel(const Bootstrap& bootstrap, control::ReceivedFds& fds, Machine::Parts parts);
  Status build_from_image(const Bootstrap& bootstrap, control::ReceivedFds& fds, Machine::Parts parts);
  Status create_machine(Machine::Parts parts, Machine::Options options);
  Status discover_msrs();
  Status watch_bootstrap();
  void on_bootstrap_event();
  Ready describe() const;
  Status report(BootstrapReply reply);

  // requests (monitor.cc)
  void on_request(control::Server::Ticket ticket, const Request& request, control::ReceivedFds fds);
  Status pause();
  Status resume();
  void connect(control::Server::Ticket ticket, const Connect& request);
  Result<Captured> capture(const Capture& request, control::ReceivedFds& fds);
  Result<uint64_t> write_vmstate(int file, image::ZeroMap zeros) const;
  Status replace_frozen(const ReplaceFrozen& request, control::ReceivedFds& fds);
  Result<DiskFrozen> swap_overlay(const FreezeDisk& request, control::ReceivedFds& fds);
  Status attach_base(const AttachBase& request, control::ReceivedFds& fds);
  void get_userfault(control::Server::Ticket ticket);
  Result<Disk*> disk_named(const std::string& id) const;
  Status watch_base();
  Stats stats() const;
  void set_machine_going();
  void finish(const std::string& reason, const std::string& detail);

  // fork, parent side (monitor_fork.cc)
  Result<ForkPlan> plan_fork(control::Server::Ticket ticket, const Fork& request, control::ReceivedFds& fds);
  void perform_fork();
  Status freeze_disk(ForkPlan& plan);
  Side branch_directly(ForkPlan& plan);
  Side branch_through_middle(ForkPlan& plan);
  void parent_goes_on(ForkPlan& plan);
  void note_resumed(ForkPlan& plan);
  void await_middle(ForkPlan plan, UniqueFd report, UniqueFd pidfd);
  // fork, child side
  Side be_middle(ForkPlan& plan, UniqueFd report);
  void become_child(ForkPlan& plan, size_t index);
  void let_go_of_parent(const std::vector<int>& also_keep);
  Status leave_chain_longer_than(uint32_t forks);
  Status have_memory_filled(const ChildSetup& setup, control::ReceivedFds& fds);
  void drop_userfault_when_complete();
  void end_with_daemon(bool also_while_waiting);
  Status grow(int64_t forked_at_ns);
  Status stay_frozen(const ChildSetup& setup, control::ReceivedFds& fds, int64_t forked_at_ns);
  Status adopt_setup(const ChildSetup& setup, control::ReceivedFds& fds);
  Status adopt_disk(const ChildSetup& setup, control::ReceivedFds& fds);

  std::unique_ptr<EventLoop> loop_;
  control::Server server_;
  UniqueFd bootstrap_;
  bool committed_ = false;
  bool start_on_commit_ = false;
  std::optional<kvm::System> system_;
  std::unique_ptr<Machine> machine_;
  std::string sandbox_id_;
  uint32_t generation_ = 0;          // forks since boot or image
  uint32_t forks_since_rebase_ = 0;  // length of the chain to ancestors' memory
  bool paused_ = false;              // PauseVm or Capture
  bool captured_ = false;            // its disk is frozen: it never runs again
  bool frozen_ = false;              // a frozen child: it never runs
  bool disk_read_only_ = false;
  UniqueFd userfault_;            // while files that RAM is mapped from are being filled
  bool from_image_ = false;       // a zygote, or a child of one that was not restored yet
  std::optional<ForkPlan> fork_;  // set by a request, taken by the main loop
  std::optional<int> exit_code_;
};

}  // namespace ramet::vmm
