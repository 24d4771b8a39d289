#include "vm/harness/vm.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/socket.h"
#include "guests/lib/protocol.h"

namespace ramet::vmtest {

using vmm::control::BootstrapSocket;
using vmm::control::Client;
using vmm::control::FdsToSend;

namespace {

std::string fresh_id() {
  static std::atomic<uint32_t> next{1};
  return "vm" + std::to_string(next++);
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  Result<UniqueFd> random = open_file("/dev/urandom", O_RDONLY);
  if (random) static_cast<void>(read_exact(random->get(), std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

}  // namespace

std::optional<std::string> cannot_run() {
#ifdef __SANITIZE_THREAD__
  return "ThreadSanitizer does not follow a fork of a process with threads";
#endif
  if (access("/dev/kvm", R_OK | W_OK) != 0) return "/dev/kvm cannot be opened on this machine";
  if (access(vmm_path().c_str(), X_OK) != 0) return vmm_path() + " is not built";
  return std::nullopt;
}

std::string vmm_path() {
  const char* path = std::getenv("RAMET_VMM");
  return path != nullptr ? path : RAMET_BINARY_DIR "/bin/ramet-vmm";
}

std::string guest_path(const std::string& name) { return RAMET_GUESTS_DIR "/" + name; }

TempDir::TempDir() {
  char path[] = "/tmp/ramet-vm-XXXXXX";
  if (mkdtemp(path) != nullptr) path_ = path;
}

TempDir::~TempDir() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Vm::~Vm() { kill(); }

Result<Vm::Overlay> Vm::new_overlay(const Disk& disk) const {
  static std::atomic<uint32_t> next{1};
  Overlay overlay;
  overlay.disk = disk.id;
  overlay.id = disk.id + "-" + std::to_string(next++);
  const std::string stem = dir_.path() + "/" + overlay.id;
  TRY_ASSIGN(overlay.data_rw, open_file(stem + ".data", O_RDWR | O_CREAT | O_EXCL, 0600));
  TRY_ASSIGN(overlay.data_ro, open_file(stem + ".data", O_RDONLY));
  TRY_ASSIGN(overlay.log_rw, open_file(stem + ".log", O_RDWR | O_CREAT | O_EXCL, 0600));
  TRY_ASSIGN(overlay.log_ro, open_file(stem + ".log", O_RDONLY));
  return overlay;
}

void Vm::describe(const Overlay& overlay, vmm::DiskSetup& setup, FdsToSend& fds) {
  setup.set_id(overlay.disk);
  vmm::OverlayFds& out = *setup.mutable_writable();
  out.set_id(overlay.id);
  out.set_data_rw_fd(fds.add(overlay.data_rw.get()));
  out.set_data_ro_fd(fds.add(overlay.data_ro.get()));
  out.set_log_rw_fd(fds.add(overlay.log_rw.get()));
  out.set_log_ro_fd(fds.add(overlay.log_ro.get()));
}

// A Vm with its sockets and console. It is connected to a listener that nobody serves yet: the connection waits in the backlog.
Status Vm::describe_base(const Disk& disk, vmm::DiskSetup& setup, FdsToSend& fds, std::vector<UniqueFd>& opened) {
  setup.set_size_bytes(disk.size_bytes);
  describe_chunks(disk, setup, fds, opened);
  if (disk.base_path.empty()) return {};
  TRY_ASSIGN(UniqueFd base, open_file(disk.base_path, O_RDONLY));
  setup.set_base_fd(fds.add(base.get()));
  opened.push_back(std::move(base));
  return {};
}

void Vm::describe_chunks(const Disk& disk, vmm::DiskSetup& setup, FdsToSend& fds, std::vector<UniqueFd>& opened) {
  if (!disk.chunks) return;
  opened.push_back(disk.chunks());
  setup.set_chunk_fd(fds.add(opened.back().get()));
}

Result<std::unique_ptr<Vm>> Vm::prepare(const std::vector<Disk>& disks, UniqueFd& vmm_end) {
  std::unique_ptr<Vm> vm(new Vm);
  vm->id_ = fresh_id();
  vm->disks_ = disks;
  const std::string path = vm->dir_.path() + "/control";
  TRY_ASSIGN(vm->listener_, listen_unix(path, SOCK_SEQPACKET, 4));
  TRY_ASSIGN(vm->console_, open_file(vm->dir_.path() + "/console", O_RDWR | O_CREAT, 0600));
  TRY_ASSIGN(BootstrapSocket::Pair pair, BootstrapSocket::make_pair());
  vm->bootstrap_ = std::move(pair.ours);
  vmm_end = std::move(pair.theirs);
  Inbox* inbox = &vm->inbox_;
  const auto on_event = [inbox](const vmm::Event& event) {
    const std::lock_guard lock(inbox->mutex);
    inbox->events.push_back(event);
    inbox->changed.notify_all();
  };
  const auto on_closed = [inbox] {
    const std::lock_guard lock(inbox->mutex);
    inbox->closed = true;
    inbox->changed.notify_all();
  };
  TRY_ASSIGN(vm->client_, Client::connect(path, on_event, on_closed));
  return vm;
}

Result<std::unique_ptr<Vm>> Vm::boot(const BootOptions& options) {
  UniqueFd vmm_end;
  TRY_ASSIGN(std::unique_ptr<Vm> vm, prepare(options.disks, vmm_end));
  TRY_ASSIGN(UniqueFd kernel, open_file(options.kernel, O_RDONLY));

  vmm::Bootstrap bootstrap;
  FdsToSend fds;
  vmm::BootSource& source = *bootstrap.mutable_boot();
  source.set_kernel_fd(fds.add(kernel.get()));
  UniqueFd initrd;
  if (!options.initrd.empty()) {
    TRY_ASSIGN(initrd, open_file(options.initrd, O_RDONLY));
    source.set_initrd_fd(fds.add(initrd.get()));
  }
  source.set_cmdline(options.cmdline);
  source.set_vcpus(options.vcpus);
  source.set_memory_bytes(options.memory_mib << 20);
  std::vector<UniqueFd> bases;
  std::vector<Overlay> overlays;
  for (const Disk& disk : options.disks) {
    vmm::DiskSetup& setup = *bootstrap.add_disks();
    TRY_ASSIGN(Overlay overlay, vm->new_overlay(disk));
    describe(overlay, setup, fds);
    TRY(describe_base(disk, setup, fds, bases));
    overlays.push_back(std::move(overlay));
  }
  TRY(vm->spawn(std::move(bootstrap), std::move(fds), std::move(vmm_end)));
  return vm;
}

Result<std::unique_ptr<Vm>> Vm::zygote(const Image& image, const std::vector<Disk>& disks) {
  UniqueFd vmm_end;
  TRY_ASSIGN(std::unique_ptr<Vm> vm, prepare(disks, vmm_end));
  vmm::Bootstrap bootstrap;
  FdsToSend fds;
  std::vector<UniqueFd> read_only;
  for (const UniqueFd* fd : {&image.vmstate, &image.memory[0], &image.memory[1]}) {
    TRY_ASSIGN(UniqueFd reopened, reopen(fd->get(), O_RDONLY));
    read_only.push_back(std::move(reopened));
  }
  vmm::ImageSource& source = *bootstrap.mutable_image();
  source.set_vmstate_fd(fds.add(read_only[0].get()));
  source.set_memory_even_fd(fds.add(read_only[1].get()));
  source.set_memory_odd_fd(fds.add(read_only[2].get()));
  source.set_zero_map(image.zero_map);
  for (const Disk& disk : disks) {
    vmm::DiskSetup& setup = *bootstrap.add_disks();
    setup.set_id(disk.id);
    TRY(describe_base(disk, setup, fds, read_only));
  }
  TRY(vm->spawn(std::move(bootstrap), std::move(fds), std::move(vmm_end)));
  return vm;
}

Status Vm::spawn(vmm::Bootstrap bootstrap, FdsToSend fds, UniqueFd vmm_end) {
  TRY_ASSIGN(UniqueFd kvm, open_file("/dev/kvm", O_RDWR));
  bootstrap.set_sandbox_id(id_);
  bootstrap.set_kvm_fd(fds.add(kvm.get()));
  bootstrap.set_listen_fd(fds.add(listener_.get()));
  bootstrap.set_console_fd(fds.add(console_.get()));
  bootstrap.set_debug_port(true);
  TRY(bootstrap_->send(bootstrap, fds.fds(), patience()));

  // Orphans of a killed VMM come to us, so that their end can be waited for.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  constexpr int kBootstrapFd = 3;
  SpawnOptions options;
  options.argv = {vmm_path(), "--bootstrap-fd", std::to_string(kBootstrapFd)};
  options.keep_fds = {{vmm_end.get(), kBootstrapFd}};
  TRY_ASSIGN(ChildProcess process, ChildProcess::spawn(options));
  pid_ = process.pid();
  TRY_ASSIGN(pidfd_, open_pidfd(pid_));
  process_ = std::move(process);
  vmm_end.reset();
  return become_ready();
}

Status Vm::become_ready() {
  TRY_ASSIGN(ready_, bootstrap_->wait_ready(patience()));
  listener_.reset();  // the VMM has its own
  return bootstrap_->commit(patience());
}

Result<PreparedChild> Vm::prepare_child() {
  PreparedChild child;
  TRY_ASSIGN(child.vm, prepare(disks_, child.vmm_end));
  child.vm->patience_ = patience_;
  vmm::ChildSetup setup;
  FdsToSend fds;
  std::vector<Overlay> overlays;
  std::vector<UniqueFd> sockets;
  setup.set_sandbox_id(child.vm->id_);
  setup.set_listen_fd(fds.add(child.vm->listener_.get()));
  setup.set_console_fd(fds.add(child.vm->console_.get()));
  setup.set_generation_id(random_bytes(16));
  for (const Disk& disk : disks_) {
    TRY_ASSIGN(Overlay overlay, child.vm->new_overlay(disk));
    vmm::DiskSetup& own = *setup.add_disks();
    describe(overlay, own, fds);
    describe_chunks(disk, own, fds, sockets);
    overlays.push_back(std::move(overlay));
  }
  TRY(child.vm->bootstrap_->send(setup, fds.fds(), patience()));
  return child;
}

Result<ForkOutcome> Vm::fork(std::vector<PreparedChild> children) {
  vmm::Fork request;
  FdsToSend fds;
  for (const PreparedChild& child : children) {
    vmm::ForkChild& entry = *request.add_children();
    entry.set_sandbox_id(child.vm->id_);
    entry.set_bootstrap_fd(fds.add(child.vmm_end.get()));
  }
  std::vector<Overlay> overlays;
  for (const Disk& disk : disks_) {
    TRY_ASSIGN(Overlay overlay, new_overlay(disk));
    describe(overlay, *request.add_parent_disks(), fds);
    overlays.push_back(std::move(overlay));
  }
  TRY_ASSIGN(Client::ForkAnswer answer, client_->fork(request, fds.fds(), patience()));

  ForkOutcome outcome;
  outcome.timing = std::move(answer.forked);
  for (size_t i = 0; i < children.size(); i++) {
    const vmm::ForkedChild& entry = outcome.timing.children(static_cast<int>(i));
    children[i].vmm_end.reset();
    if (!answer.pidfds[i]) {
      outcome.failures.push_back(vmm::control::from_failure(entry.failure()));
      continue;
    }
    std::unique_ptr<Vm> vm = std::move(children[i].vm);
    vm->pid_ = entry.pid();
    vm->pidfd_ = std::move(answer.pidfds[i]);
    Status ready = vm->become_ready();
    if (ready)
      outcome.children.push_back(std::move(vm));
    else
      outcome.failures.push_back(std::move(ready).error());
  }
  return outcome;
}

Result<std::vector<std::unique_ptr<Vm>>> Vm::fork_many(size_t count) {
  std::vector<PreparedChild> prepared;
  for (size_t i = 0; i < count; i++) {
    TRY_ASSIGN(PreparedChild child, prepare_child());
    prepared.push_back(std::move(child));
  }
  TRY_ASSIGN(ForkOutcome outcome, fork(std::move(prepared)));
  if (!outcome.failures.empty()) return tl::unexpected<Error>(outcome.failures.front());
  return std::move(outcome.children);
}

Result<std::unique_ptr<Vm>> Vm::fork_one() {
  TRY_ASSIGN(std::vector<std::unique_ptr<Vm>> children, fork_many(1));
  if (children.size() != 1)
    return fail(ErrorKind::kInternal, "a fork of one gave " + std::to_string(children.size()) + " children");
  return std::move(children.front());
}

Result<Image> Vm::capture() {
  Image image;
  TRY_ASSIGN(image.vmstate, make_memfd("vmstate", 0));
  for (UniqueFd& memory : image.memory) {
    TRY_ASSIGN(memory, make_memfd("memory", ready_.ram_bytes()));
  }
  TRY_ASSIGN(vmm::Captured captured,
             client_->capture(image.vmstate.get(), image.memory[0].get(), image.memory[1].get(), patience()));
  image.stored_bytes = captured.stored_bytes();
  return image;
}

Result<FrozenVm> Vm::freeze() {
  FrozenVm frozen;
  TRY_ASSIGN(frozen.vmstate, make_memfd("vmstate", 0));
  TRY_ASSIGN(BootstrapSocket::Pair pair, BootstrapSocket::make_pair());
  vmm::ChildSetup setup;
  FdsToSend setup_fds;
  setup.set_sandbox_id(fresh_id());
  setup.set_vmstate_fd(setup_fds.add(frozen.vmstate.get()));
  TRY(pair.ours.send(setup, setup_fds.fds(), patience()));
  frozen.bootstrap = std::move(pair.ours);

  vmm::Fork request;
  FdsToSend fds;
  vmm::ForkChild& entry = *request.add_children();
  entry.set_sandbox_id(setup.sandbox_id());
  entry.set_bootstrap_fd(fds.add(pair.theirs.get()));
  std::vector<Overlay> overlays;
  for (const Disk& disk : disks_) {
    TRY_ASSIGN(Overlay overlay, new_overlay(disk));
    describe(overlay, *request.add_parent_disks(), fds);
    overlays.push_back(std::move(overlay));
  }
  TRY_ASSIGN(Client::ForkAnswer answer, client_->fork(request, fds.fds(), patience()));
  pair.theirs.reset();
  if (!answer.pidfds[0]) return tl::unexpected<Error>(vmm::control::from_failure(answer.forked.children(0).failure()));
  frozen.pid = answer.forked.children(0).pid();
  frozen.pidfd = std::move(answer.pidfds[0]);
  frozen.timing = std::move(answer.forked);
  TRY_ASSIGN(frozen.ready, frozen.bootstrap->wait_ready(patience()));
  return frozen;
}

Result<Image> FrozenVm::image() const {
  constexpr uint64_t kSegment = 16u << 20, kBlock = 2u << 20;
  Image out;
  TRY_ASSIGN(out.vmstate, reopen(vmstate.get(), O_RDONLY));
  const uint64_t bytes = ready.ram_bytes();
  for (UniqueFd& memory : out.memory) {
    TRY_ASSIGN(memory, make_memfd("memory", bytes));
  }
  TRY_ASSIGN(const UniqueFd memory, open_file("/proc/" + std::to_string(pid) + "/mem", O_RDONLY));
  std::vector<std::byte> segment(kSegment);
  for (uint64_t at = 0; at < bytes; at += kSegment) {
    const std::span<std::byte> part = std::span(segment).first(std::min(kSegment, bytes - at));
    TRY(pread_exact(memory.get(), part, ready.ram_address() + at));
    TRY(pwrite_all(out.memory[at / kSegment % 2].get(), part, at));
  }
  out.zero_map.assign((bytes / kBlock + 7) / 8, '\0');
  return out;
}

Result<vmm::Event> Vm::next_event(Deadline deadline) {
  std::unique_lock lock(inbox_.mutex);
  const bool came = inbox_.changed.wait_until(lock, deadline, [this] { return inbox_.closed || !inbox_.events.empty(); });
  if (!came) return fail(ErrorKind::kTimeout, id_ + " sent no event before the deadline");
  if (inbox_.events.empty()) return fail(ErrorKind::kUnavailable, id_ + " hung up");
  vmm::Event event = std::move(inbox_.events.front());
  inbox_.events.pop_front();
  return event;
}

Result<uint32_t> Vm::next_word(Deadline deadline) {
  for (;;) {
    TRY_ASSIGN(vmm::Event event, next_event(deadline));
    if (event.has_debug_port()) return event.debug_port().value();
    if (event.has_ended())
      return fail(ErrorKind::kUnavailable, id_ + " ended: " + event.ended().reason() + " " + event.ended().detail());
  }
}

Status Vm::push(std::span<const uint32_t> words) { return client_->debug_push(words, patience()); }

Result<uint32_t> Vm::wait_for_kind(uint32_t kind, Deadline deadline) {
  for (;;) {
    TRY_ASSIGN(uint32_t word, next_word(deadline));
    if (guests::kind_of(word) == kind) return guests::value_of(word);
    if (guests::kind_of(word) == guests::kFail)
      return fail(ErrorKind::kInvalid, id_ + ": the guest refused with reason " + std::to_string(guests::value_of(word)));
  }
}

Result<uint32_t> Vm::command(uint32_t kind, uint32_t value) {
  const uint32_t word = guests::word(kind, value);
  TRY(push(std::span(&word, 1)));
  return wait_for_kind(guests::kAnswer, patience());
}

Result<vmm::Ended> Vm::wait_ended(Deadline deadline) {
  for (;;) {
    TRY_ASSIGN(vmm::Event event, next_event(deadline));
    if (event.has_ended()) return event.ended();
  }
}

bool Vm::wait_gone(Deadline deadline) {
  if (!pidfd_) return true;
  if (!wait_for(pidfd_.get(), POLLIN, deadline)) return false;
  if (process_) static_cast<void>(process_->wait(deadline));
  // A forked child is reaped by its parent, or by us when that is gone.
  siginfo_t info{};
  if (!process_) waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG);
  return true;
}

void Vm::kill() {
  if (!pidfd_) return;
  static_cast<void>(signal_pidfd(pidfd_.get(), SIGKILL));
  wait_gone(patience());
}

bool Vm::alive() const { return pidfd_ && !wait_for(pidfd_.get(), POLLIN, MonotonicClock::now()); }

Result<std::string> Vm::console() const { return read_file(dir_.path() + "/console"); }

uint64_t Vm::console_file_bytes() const { return file_size(console_.get()).value_or(0); }

}  // namespace ramet::vmtest
