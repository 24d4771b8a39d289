// tests/vm/harness/vm.h - one running ramet-vmm, driven over its control protocol the way the daemon does it.
// Not here: rametd, disks' contents, what tiny guests mean by their words (tests/guests/lib/protocol.h).
//
// A Vm is a resource: its destructor kills the process and waits until it is gone; its sockets and files vanish with it. A
// forked child is prepared first (sockets, console, overlays; off the path that is measured) and then forked. Thread: one.
// Errors: the monitor's own failures keep their kind.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "vmm/control/bootstrap.h"
#include "vmm/control/client.h"

namespace ramet::vmtest {

// Why no VM can run here, or nothing: tests and benchmarks skip with it.
std::optional<std::string> cannot_run();
// $RAMET_VMM, else bin/ramet-vmm of this build.
std::string vmm_path();
// A tiny guest by folder name.
std::string guest_path(const std::string& name);

// A directory that is removed with all that is in it.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Disk {
  std::string id = "vda";
  std::string base_path;  // empty: all zero
  uint64_t size_bytes = 0;
  // In the place of base_path: a chunk socket, a new one for each process.
  std::function<UniqueFd()> chunks;
};

struct BootOptions {
  std::string kernel;  // ELF file
  std::string initrd;  // empty: none
  std::string cmdline;
  uint32_t vcpus = 1;
  uint64_t memory_mib = 64;
  std::vector<Disk> disks;
};

// A captured machine: what a zygote maps.
struct Image {
  UniqueFd vmstate;
  UniqueFd memory[2];
  uint64_t stored_bytes = 0;
  std::string zero_map;  // empty: as vmstate says
};

// A frozen child: a machine at one instant, which never runs. It ends when this goes.
struct FrozenVm {
  pid_t pid = -1;
  UniqueFd pidfd, vmstate;
  vmm::Ready ready;
  vmm::Forked timing;
  std::optional<vmm::control::BootstrapSocket> bootstrap;

  // Its memory, read from outside; nothing is left out.
  Result<Image> image() const;
};

class Vm;

// Everything a child needs, made before the fork.
struct PreparedChild {
  std::unique_ptr<Vm> vm;  // all but the process
  UniqueFd vmm_end;        // its bootstrap socket, given away by the fork
};

struct ForkOutcome {
  vmm::Forked timing;                         // children's entries are consumed
  std::vector<std::unique_ptr<Vm>> children;  // those that became ready, in request order
  std::vector<Error> failures;
};

class Vm {
 public:
  // Boots a kernel. Returns once the VMM said that it is ready (it runs then).
  static Result<std::unique_ptr<Vm>> boot(const BootOptions& options);
  // A zygote: maps the image and executes nothing.
  static Result<std::unique_ptr<Vm>> zygote(const Image& image, const std::vector<Disk>& disks = {});
  ~Vm();
  Vm(const Vm&) = delete;
  Vm& operator=(const Vm&) = delete;

  const std::string& id() const { return id_; }
  pid_t pid() const { return pid_; }
  const vmm::Ready& ready() const { return ready_; }

  Result<PreparedChild> prepare_child();
  Result<ForkOutcome> fork(std::vector<PreparedChild> children);
  // prepare_child and fork of one, for tests that do not measure.
  Result<std::unique_ptr<Vm>> fork_one();
  Result<std::vector<std::unique_ptr<Vm>>> fork_many(size_t count);

  // The machine as an image; this VM stays parked and is ended by its destructor.
  Result<Image> capture();
  // The machine at this instant in a process of its own; this VM goes on.
  Result<FrozenVm> freeze();

  // Any other request: pause, stop, stats, ... Each with patience().
  vmm::control::Client& control() { return *client_; }
  Deadline patience() const { return deadline_after(patience_); }
  // The next event, in the order they came.   Errors: kTimeout, kUnavailable (the VMM hung up and there is none left).
  Result<vmm::Event> next_event(Deadline deadline);

  // Words of the debug port, see tests/guests/lib/protocol.h. word() skips events that are not of the debug port.
  Result<uint32_t> next_word(Deadline deadline);
  Status push(std::span<const uint32_t> words);
  // Pushes one command and returns the value of its kAnswer; ticks on the way are skipped. kFail is kInvalid.
  Result<uint32_t> command(uint32_t kind, uint32_t value);
  // Skips words up to one of this kind and returns its value.
  Result<uint32_t> wait_for_kind(uint32_t kind, Deadline deadline);

  // The end of the machine as the VMM reports it ("reset", "triple_fault", ...).
  Result<vmm::Ended> wait_ended(Deadline deadline);
  // SIGKILL, and wait until the process is gone.
  void kill();
  bool alive() const;
  // True when the process is gone by the deadline.
  bool wait_gone(Deadline deadline);

  // What the guest wrote to its console so far (bounded by the VMM).
  Result<std::string> console() const;
  uint64_t console_file_bytes() const;
  // Changes the deadline of calls, events and commands (10 s).
  void set_patience(Milliseconds patience) { patience_ = patience; }

 private:
  Vm() = default;
  static Result<std::unique_ptr<Vm>> prepare(const std::vector<Disk>& disks, UniqueFd& vmm_end);
  Status spawn(vmm::Bootstrap bootstrap, vmm::control::FdsToSend fds, UniqueFd vmm_end);
  Status become_ready();

  struct Overlay {
    std::string disk, id;
    UniqueFd data_rw, data_ro, log_rw, log_ro;
  };
  Result<Overlay> new_overlay(const Disk& disk) const;
  static void describe(const Overlay& overlay, vmm::DiskSetup& setup, vmm::control::FdsToSend& fds);
  // `opened` keeps what is added until it was sent.
  static Status describe_base(const Disk& disk, vmm::DiskSetup& setup, vmm::control::FdsToSend& fds,
                              std::vector<UniqueFd>& opened);
  static void describe_chunks(const Disk& disk, vmm::DiskSetup& setup, vmm::control::FdsToSend& fds,
                              std::vector<UniqueFd>& opened);

  // Filled by the client's reader thread.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<vmm::Event> events;  // guarded by mutex, as is:
    bool closed = false;
  };

  std::string id_;
  TempDir dir_;
  std::vector<Disk> disks_;
  UniqueFd listener_, console_;
  std::optional<vmm::control::BootstrapSocket> bootstrap_;
  UniqueFd pidfd_;
  pid_t pid_ = -1;
  std::optional<ChildProcess> process_;  // exec'ed here; a forked child has only pidfd_
  vmm::Ready ready_;
  Inbox inbox_;
  std::unique_ptr<vmm::control::Client> client_;  // last: its reader thread ends before the inbox
  Milliseconds patience_{10000};
};

}  // namespace ramet::vmtest
