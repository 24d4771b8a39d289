#include "vmm/vcpu_set.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace ramet::vmm {
namespace {

constexpr int kKickSignal = SIGUSR1;
constexpr size_t kStackBytes = 1 << 20;  // address space; touched as needed
// The guest's watchdogs look at seconds.
constexpr int64_t kUnnoticedStopNs = 500'000'000;
// A thread that sleeps is awake again 30 to 60 us later; a fork without dirt takes 200 us, with four handovers.
constexpr std::chrono::microseconds kSpin{200};

thread_local volatile uint8_t* t_immediate_exit = nullptr;

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, const timespec* timeout) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, timeout, nullptr, 0);
}
void futex_wake_all(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

// Watches the word for kSpin. True: it is not `expected` any more.
bool spin_until_changed(const std::atomic<uint32_t>& word, uint32_t expected) {
  const Deadline end = MonotonicClock::now() + kSpin;
  do {
    for (int i = 0; i < 40; i++) {
      if (word.load(std::memory_order_acquire) != expected) return true;
      __builtin_ia32_pause();
    }
    ::sched_yield();  // the other may wait for this very processor
  } while (MonotonicClock::now() < end);
  return false;
}

// Spinning helps while the one that is waited for runs at the same time.
bool processors_for(size_t threads) {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 && static_cast<size_t>(CPU_COUNT(&set)) >= threads;
}

}  // namespace

void VcpuSet::on_kick(int) {
  if (t_immediate_exit) *t_immediate_exit = 1;
}

VcpuSet::VcpuSet(const kvm::System& system, std::vector<kvm::Vcpu> vcpus, ExitHandler on_exit, ErrorHandler on_error)
    : system_(system),
      vcpus_(std::move(vcpus)),
      on_exit_(std::move(on_exit)),
      on_error_(std::move(on_error)),
      spins_(processors_for(vcpus_.size() + 1)) {}

VcpuSet::~VcpuSet() { end(); }

Status VcpuSet::start_threads() {
  struct sigaction action {};
  action.sa_handler = on_kick;  // no SA_RESTART: KVM_RUN must return
  if (::sigaction(kKickSignal, &action, nullptr) < 0) return fail_errno("set signal handler");
  std::vector<Pipe> wakes(vcpus_.size());
  for (Pipe& wake : wakes) {
    TRY_ASSIGN(wake, make_pipe());
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  for (size_t i = 0; i < vcpus_.size(); i++) {
    std::unique_ptr<Thread> t = std::make_unique<Thread>();
    t->owner = this;
    t->index = i;
    t->wake = std::move(wakes[i]);
    const int err = pthread_create(&t->handle, &attributes, thread_main, t.get());
    if (err != 0) {
      pthread_attr_destroy(&attributes);
      return fail_errno("create thread of vCPU " + std::to_string(i), err);
    }
    t->started = true;
    threads_.push_back(std::move(t));
  }
  pthread_attr_destroy(&attributes);
  return {};
}

void* VcpuSet::thread_main(void* thread) {
  Thread& t = *static_cast<Thread*>(thread);
  t.owner->loop(t);
  return nullptr;
}

void VcpuSet::loop(Thread& t) {
  t_immediate_exit = vcpus_[t.index].immediate_exit();
  uint32_t seen = kPark;  // the ticket this thread acknowledged last
  bool over = false;
  bool command_follows = true;  // soon: after the start, and between park and save
  for (;;) {
    const uint32_t word = word_.load(std::memory_order_acquire);
    const Command command = static_cast<Command>(word & 3);
    if (word != seen) {
      seen = word;
      carry_out(t, command);
      command_follows = command == kPark;
      if (waiting_for_.fetch_sub(1, std::memory_order_acq_rel) == 1) futex_wake_all(waiting_for_);
      if (command == kEnd) return;
    }
    if (command != kRun || over) {
      // Not while the machine forks: the child may be put on this processor.
      if (!spins_ || !command_follows || !spin_until_changed(word_, word)) sleep_while(t, word);
      command_follows = false;
      continue;
    }
    over = !step(t);
  }
}

void VcpuSet::carry_out(Thread& t, Command command) {
  kvm::Vcpu& vcpu = vcpus_[t.index];
  switch (command) {
    case kPark:
      t.stopped_at_ns.store(monotonic_ns());
      complete_pending_exit(t);
      return;
    case kSave: t.state = vcpu.save(system_); return;
    case kRun: {
      *vcpu.immediate_exit() = 0;
      if (monotonic_ns() - t.stopped_at_ns.load() > kUnnoticedStopNs)
        static_cast<void>(vcpu.notify_paused());  // a false watchdog alarm is better than a dead machine
      int64_t unset = 0;
      entered_at_ns_.compare_exchange_strong(unset, monotonic_ns());
      return;
    }
    case kEnd: return;
  }
}

bool VcpuSet::step(Thread& t) {
  Result<kvm::Exit> exit = vcpus_[t.index].run();
  if (!exit) {
    on_error_(static_cast<unsigned>(t.index), exit.error());
    return false;
  }
  switch (exit->kind) {
    case kvm::Exit::Kind::kInterrupted: *vcpus_[t.index].immediate_exit() = 0; return true;
    case kvm::Exit::Kind::kAgain: return true;
    default: t.exits.fetch_add(1, std::memory_order_relaxed); return on_exit_(static_cast<unsigned>(t.index), *exit);
  }
}

// The kernel applies the answer to a port or MMIO access when KVM_RUN is entered again; before that the registers mean nothing.
void VcpuSet::complete_pending_exit(Thread& t) {
  kvm::Vcpu& vcpu = vcpus_[t.index];
  for (;;) {
    *vcpu.immediate_exit() = 1;
    Result<kvm::Exit> exit = vcpu.run();
    if (!exit || exit->kind == kvm::Exit::Kind::kInterrupted || exit->kind == kvm::Exit::Kind::kAgain) break;
    if (!on_exit_(static_cast<unsigned>(t.index), *exit)) break;  // the rest of an access in several parts
  }
  *vcpu.immediate_exit() = 0;
}

void VcpuSet::issue(Command command) {
  waiting_for_.store(static_cast<uint32_t>(threads_.size()), std::memory_order_relaxed);
  const uint32_t ticket = (word_.load(std::memory_order_relaxed) >> 2) + 1;
  word_.store(ticket << 2 | command);
  for (const std::unique_ptr<Thread>& t : threads_) {
    if (!t->asleep.exchange(false)) continue;
    const char byte = 0;
    [[maybe_unused]] const ssize_t n = ::write(t->wake.write_end.get(), &byte, 1);
  }
}

// A pipe and not a futex: who writes into a pipe tells the scheduler that he is about to wait himself, and the reader may take
// his processor when the forked child has taken the reader's own.
void VcpuSet::sleep_while(Thread& t, uint32_t word) {
  t.asleep.store(true);
  if (word_.load() != word && t.asleep.exchange(false)) return;
  char byte;
  [[maybe_unused]] const ssize_t n = ::read(t.wake.read_end.get(), &byte, 1);  // a kick interrupts it
}

void VcpuSet::kick_all() {
  for (const std::unique_ptr<Thread>& t : threads_) pthread_kill(t->handle, kKickSignal);
}

Status VcpuSet::wait_acknowledged(Deadline deadline, const char* what) {
  for (;;) {
    const uint32_t left = waiting_for_.load(std::memory_order_acquire);
    if (left == 0) return {};
    const Milliseconds time = time_left(deadline);
    if (time.count() == 0)
      return fail(ErrorKind::kTimeout,
                  std::to_string(left) + " of " + std::to_string(threads_.size()) + " vCPUs did not " + what + " in time");
    if (spins_ && spin_until_changed(waiting_for_, left)) continue;
    const timespec timeout{time.count() / 1000, time.count() % 1000 * 1'000'000};
    futex_wait(waiting_for_, left, &timeout);
  }
}

void VcpuSet::run() {
  // A late acknowledgement of a command that timed out must not count for this one.
  static_cast<void>(wait_acknowledged(Deadline::max(), "settle"));
  entered_at_ns_.store(0);
  issue(kRun);
}

Status VcpuSet::park(Deadline deadline, const std::function<void()>& before_wait) {
  TRY(wait_acknowledged(deadline, "start"));
  issue(kPark);
  kick_all();
  if (before_wait) before_wait();
  return wait_acknowledged(deadline, "stop");
}

Result<std::vector<kvm::VcpuState>> VcpuSet::save(Deadline deadline) {
  issue(kSave);
  TRY(wait_acknowledged(deadline, "save its state"));
  std::vector<kvm::VcpuState> out;
  for (const std::unique_ptr<Thread>& t : threads_) {
    if (!t->state) return tl::unexpected<Error>(t->state.error());
    out.push_back(*std::move(t->state));
    t->state = fail(ErrorKind::kInternal, "not saved");
  }
  return out;
}

void VcpuSet::end() {
  if (threads_.empty()) return;
  static_cast<void>(wait_acknowledged(Deadline::max(), "settle"));
  issue(kEnd);
  kick_all();
  for (const std::unique_ptr<Thread>& t : threads_) pthread_join(t->handle, nullptr);
  threads_.clear();
}

void VcpuSet::abandon_after_fork() {
  threads_.clear();
  for (kvm::Vcpu& v : vcpus_) v.abandon_after_fork();
  vcpus_.clear();
}

uint64_t VcpuSet::exits() const {
  uint64_t sum = 0;
  for (const std::unique_ptr<Thread>& t : threads_) sum += t->exits.load(std::memory_order_relaxed);
  return sum;
}

int64_t VcpuSet::stopped_at_ns() const {
  int64_t last = 0;
  for (const std::unique_ptr<Thread>& t : threads_) last = std::max(last, t->stopped_at_ns.load());
  return last;
}

}  // namespace ramet::vmm
