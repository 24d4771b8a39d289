// How a monitor process begins: from a kernel, or from an image; and its talk on the bootstrap socket.
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "vmm/boot/acpi.h"
#include "vmm/boot/kernel.h"
#include "vmm/disk_setup.h"
#include "vmm/monitor.h"

namespace ramet::vmm {
namespace {

constexpr std::chrono::seconds kBootstrapLimit{5};

GenerationId random_generation_id() {
  GenerationId id{};
  static_cast<void>(::getrandom(id.data(), id.size(), 0));
  return id;
}

}  // namespace

Status Monitor::start(UniqueFd bootstrap_socket) {
  bootstrap_ = std::move(bootstrap_socket);
  Bootstrap bootstrap;
  TRY_ASSIGN(control::ReceivedFds fds, control::receive(bootstrap_.get(), bootstrap, deadline_after(kBootstrapLimit)));
  BootstrapReply reply;
  const Status built = build_from(bootstrap, fds);
  if (!built) {
    *reply.mutable_failed() = control::to_failure(built.error());
    static_cast<void>(report(std::move(reply)));
    return built;
  }
  *reply.mutable_ready() = describe();
  TRY(watch_bootstrap());
  return report(std::move(reply));
}

Status Monitor::build_from(const Bootstrap& bootstrap, control::ReceivedFds& fds) {
  sandbox_id_ = bootstrap.sandbox_id();
  log_init("ramet-vmm", sandbox_id_, LogLevel::kInfo);
  TRY_ASSIGN(UniqueFd kvm, fds.take(bootstrap.kvm_fd(), "kvm"));
  TRY_ASSIGN(UniqueFd listener, fds.take(bootstrap.listen_fd(), "listen"));
  TRY(server_.listen(std::move(listener)));  // nobody is served before run()
  Machine::Parts parts;
  TRY_ASSIGN(parts.console, fds.take_optional(bootstrap.console_fd(), "console"));
  TRY_ASSIGN(parts.disk, open_disk(bootstrap, fds));
  disk_read_only_ = bootstrap.disks_size() > 0 && bootstrap.disks(0).read_only();
  TRY_ASSIGN(system_, kvm::System::open(std::move(kvm)));
  TRY(discover_msrs());
  if (bootstrap.has_boot())
    TRY(build_from_kernel(bootstrap, fds, std::move(parts)));
  else if (bootstrap.has_image())
    TRY(build_from_image(bootstrap, fds, std::move(parts)));
  else
    return fail(ErrorKind::kInvalid, "bootstrap names neither a kernel nor an image");
  return watch_base();
}

Status Monitor::discover_msrs() {
  TRY_ASSIGN(kvm::Vm vm, system_->create_vm());
  TRY(vm.enable_split_irqchip());
  TRY_ASSIGN(kvm::Vcpu vcpu, vm.create_vcpu(0));
  TRY(vcpu.set_cpuid(*system_, 1));
  return system_->discover_msrs(vcpu);
}

Status Monitor::create_machine(Machine::Parts parts, Machine::Options options) {
  Machine::Callbacks callbacks;
  callbacks.ended = [this](const EndOfMachine& end) { loop_->post([this, end] { finish(end.reason, end.detail); }); };
  callbacks.debug_word = [this](unsigned vcpu, uint32_t word) {
    const int64_t now = monotonic_ns();
    loop_->post([this, vcpu, word, now] {
      Event event;
      event.mutable_debug_port()->set_value(word);
      event.mutable_debug_port()->set_at_ns(now);
      event.mutable_debug_port()->set_vcpu(vcpu);
      server_.send_event(event);
    });
  };
  TRY_ASSIGN(machine_, Machine::create(std::move(parts), options, *loop_, std::move(callbacks)));
  return {};
}

Status Monitor::build_from_kernel(const Bootstrap& bootstrap, control::ReceivedFds& fds, Machine::Parts parts) {
  const BootSource& source = bootstrap.boot();
  TRY_ASSIGN(const UniqueFd kernel, fds.take(source.kernel_fd(), "kernel"));
  TRY_ASSIGN(const UniqueFd initrd, fds.take_optional(source.initrd_fd(), "initrd"));
  TRY_ASSIGN(parts.ram, GuestRam::boot(source.memory_bytes()));
  TRY(create_machine(std::move(parts), {.vcpus = source.vcpus(), .debug_port = bootstrap.debug_port()}));
  TRY_ASSIGN(const kvm::BootRegisters registers, load_kernel(machine_->ram().memory(), {.kernel_fd = kernel.get(),
                                                                                        .initrd_fd = initrd ? initrd.get() : -1,
                                                                                        .cmdline = source.cmdline(),
                                                                                        .vcpus = source.vcpus()}));
  TRY(machine_->build(*system_));
  TRY(machine_->boot(registers, random_generation_id()));
  set_machine_going();
  return {};
}

Status Monitor::build_from_image(const Bootstrap& bootstrap, control::ReceivedFds& fds, Machine::Parts parts) {
  const ImageSource& source = bootstrap.image();
  TRY_ASSIGN(const UniqueFd state_file, fds.take(source.vmstate_fd(), "vmstate"));
  TRY_ASSIGN(UniqueFd even, fds.take(source.memory_even_fd(), "even memory file"));
  TRY_ASSIGN(UniqueFd odd, fds.take(source.memory_odd_fd(), "odd memory file"));
  TRY_ASSIGN(const uint64_t state_bytes, file_size(state_file.get()));
  if (state_bytes > kMaxVmStateBytes)
    return fail(ErrorKind::kInvalid,
                "vmstate has " + std::to_string(state_bytes) + " bytes, the limit is " + std::to_string(kMaxVmStateBytes));
  std::string bytes(state_bytes, '\0');
  TRY(pread_exact(state_file.get(), std::as_writable_bytes(std::span(bytes)), 0));
  TRY_ASSIGN(VmState state, decode_vmstate(bytes));
  if (!source.zero_map().empty()) {
    TRY_ASSIGN(state.zeros, image::ZeroMap::decode(state.memory_bytes, source.zero_map()));
  }
  // The header keeps the beginning of a long name only.
  const std::string here = system_->cpu_model().substr(0, kMaxCpuModelBytes);
  if (state.cpu_model != here)
    return fail(ErrorKind::kUnsupported, "the image was captured on '" + state.cpu_model + "', this host is '" + here + "'");
  TRY_ASSIGN(parts.ram, GuestRam::map_image(state.zeros, std::move(even), std::move(odd)));
  TRY(create_machine(std::move(parts),
                     {.vcpus = static_cast<unsigned>(state.vcpus.size()), .debug_port = bootstrap.debug_port()}));
  TRY(machine_->load(std::move(state)));
  from_image_ = true;
  // What creates share must be the image alone: a page of our own would be inherited by every sandbox.
  TRY_ASSIGN(const bool untouched, machine_->ram().is_untouched());
  if (!untouched) return fail(ErrorKind::kInternal, "mapping the image touched guest memory");
  return {};
}

Ready Monitor::describe() const {
  Ready ready;
  ready.set_ram_address(reinterpret_cast<uint64_t>(machine_->ram().base()));
  ready.set_ram_bytes(machine_->ram().size_bytes());
  ready.set_generation(generation_);
  return ready;
}

Status Monitor::report(BootstrapReply reply) {
  return control::send(bootstrap_.get(), reply, {}, deadline_after(kBootstrapLimit));
}

Status Monitor::watch_bootstrap() {
  return loop_->add(bootstrap_.get(), EPOLLIN, [this](uint32_t) { on_bootstrap_event(); });
}

void Monitor::on_bootstrap_event() {
  if (frozen_) {  // nobody reads us any more
    exit_code_ = 0;
    return loop_->stop();
  }
  BootstrapCommand command;
  const Result<control::ReceivedFds> received = control::receive(bootstrap_.get(), command, MonotonicClock::now());
  if (!received && received.error().kind() == ErrorKind::kTimeout) return;
  if (!received || !command.commit()) {
    log_warn("the daemon gave up before it committed");
    if (userfault_) ::_exit(2);  // vCPUs may wait for memory that nobody brings
    exit_code_ = 2;
    loop_->stop();
    return;
  }
  loop_->remove(bootstrap_.get());
  bootstrap_.reset();
  if (!start_on_commit_) return;
  start_on_commit_ = false;
  set_machine_going();
  Event event;
  event.mutable_started()->set_at_ns(machine_->wait_entered_ns());
  server_.send_event(event);
}

}  // namespace ramet::vmm
