// vmm/vcpu_set.h - the vCPU threads of one machine, driven together: run, park, save, end.
//
//            run()              park()              save()
//   parked --------> running --------> parked ... parked (state of each in its slot)
//      ^------------------------------------'            end(): threads return, from parked or running
//
// *Parked* means: out of KVM_RUN, the pending port or MMIO access completed, registers final. Each thread carries out every
// command itself (a vCPU is loaded on its own thread's processor) and acknowledges it; the caller waits with a deadline.
// Problem: a kick may come between a thread's look at the command and its KVM_RUN. Idea: the signal handler itself sets
// immediate_exit, so that KVM_RUN returns at once.
// Idea: waits begin with a short spin, but never while the machine forks, when the child needs the processor.
// Raw pthreads, futex words and pipes only: a forked child has none of these threads, and simply forgets them
// (abandon_after_fork).
//
// Not here: what an exit means (ExitHandler). Thread: commands from one thread (the event loop's). Owner: the machine.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"
#include "kvm/kvm.h"

namespace ramet::vmm {

class VcpuSet {
 public:
  // Called on the vCPU's thread. False: this vCPU does not go on by itself (the machine is over).
  using ExitHandler = std::function<bool(unsigned vcpu, kvm::Exit& exit)>;
  // KVM_RUN failed; same consequence.
  using ErrorHandler = std::function<void(unsigned vcpu, const Error& error)>;

  // Requires: system outlives it.
  VcpuSet(const kvm::System& system, std::vector<kvm::Vcpu> vcpus, ExitHandler on_exit, ErrorHandler on_error);
  ~VcpuSet();

  // Threads begin parked.   Errors: kNoSpace.
  Status start_threads();
  // Tells the guest's watchdogs that it was stopped, then enters it. Does not wait.
  void run();
  // `before_wait` runs between the request and the wait: it makes waiting exit handlers return.   Errors: kTimeout (call
  // run()).
  Status park(Deadline deadline, const std::function<void()>& before_wait = {});
  // Requires: parked.
  Result<std::vector<kvm::VcpuState>> save(Deadline deadline);
  void end();

  // First thing in a forked child: no threads, no descriptors. The object is good for destruction only.
  void abandon_after_fork();

  std::vector<kvm::Vcpu>& vcpus() { return vcpus_; }
  uint64_t exits() const;
  // CLOCK_MONOTONIC ns: when the last vCPU left the guest in the last park(), and the first entered it after the last run() (0:
  // not yet).
  int64_t stopped_at_ns() const;
  int64_t entered_at_ns() const { return entered_at_ns_.load(); }

 private:
  enum Command : uint32_t { kPark = 0, kRun = 1, kSave = 2, kEnd = 3 };
  struct Thread {
    VcpuSet* owner = nullptr;
    size_t index = 0;
    pthread_t handle{};
    bool started = false;
    std::atomic<bool> asleep{false};  // and waits for a byte in:
    Pipe wake;
    std::atomic<uint64_t> exits{0};
    std::atomic<int64_t> stopped_at_ns{0};
    Result<kvm::VcpuState> state = fail(ErrorKind::kInternal, "not saved");
  };
  static void* thread_main(void* thread);
  static void on_kick(int);
  void loop(Thread& t);
  void carry_out(Thread& t, Command command);
  bool step(Thread& t);
  void complete_pending_exit(Thread& t);
  void issue(Command command);
  void sleep_while(Thread& t, uint32_t word);
  Status wait_acknowledged(Deadline deadline, const char* what);
  void kick_all();

  const kvm::System& system_;
  std::vector<kvm::Vcpu> vcpus_;
  const ExitHandler on_exit_;
  const ErrorHandler on_error_;
  const bool spins_;  // for a moment before it sleeps, where the host has a processor for each thread and the commander
  std::vector<std::unique_ptr<Thread>> threads_;
  std::atomic<uint32_t> word_{kPark};     // ticket << 2 | command
  std::atomic<uint32_t> waiting_for_{0};  // threads that have not acknowledged the current ticket; a futex
  std::atomic<int64_t> entered_at_ns_{0};
};

}  // namespace ramet::vmm
