#include "vmm/machine.h"

#include <sched.h>

#include <algorithm>

namespace ramet::vmm {
namespace {

constexpr Milliseconds kSaveLimit{2000};
constexpr Milliseconds kEnterLimit{50};
thread_local unsigned t_vcpu = 0;

}  // namespace

Machine::Machine(Parts parts, Options options, Callbacks callbacks)
    : options_(options),
      callbacks_(std::move(callbacks)),
      ram_(std::move(parts.ram)),
      console_(std::move(parts.console)),
      ioapic_([this](uint64_t address, uint32_t data) { send_message(address, data); }),
      serial_([this](char c) { console_.append(c); }, edge(layout::kSerialGsi)),
      power_([this](PowerAction a) { end(a == PowerAction::kOff ? "poweroff" : "reset", "asked for by the guest"); },
             edge(layout::kPowerButtonGsi)),
      generation_id_(ram_->memory(), edge(layout::kGenerationIdGsi)),
      disk_(std::move(parts.disk)),
      balloon_([this](GuestAddr address, uint64_t length) { return ram_->drop(address, length); }) {}

Machine::~Machine() {
  if (vcpus_) vcpus_->end();  // before the devices their exits reach
}

Result<std::unique_ptr<Machine>> Machine::create(Parts parts, Options options, EventLoop& loop, Callbacks callbacks) {
  if (options.vcpus < 1 || options.vcpus > layout::kMaxVcpus)
    return fail(ErrorKind::kInvalid,
                std::to_string(options.vcpus) + " vCPUs, the limits are 1 and " + std::to_string(layout::kMaxVcpus));
  std::unique_ptr<Machine> machine(new Machine(std::move(parts), options, std::move(callbacks)));
  TRY(machine->connect_buses());
  machine->use_loop(loop);
  return machine;
}

Status Machine::connect_buses() {
  TRY(mmio_.add(layout::kIoapicBase, layout::kIoapicWindow, &ioapic_));
  TRY(ports_.add(layout::kSerialPort, 8, &serial_));
  TRY(ports_.add(layout::kPowerPorts, layout::kPowerPortCount, &power_));
  if (disk_) TRY(attach(layout::kBlockSlot, disk_->device()));
  TRY(attach(layout::kVsockSlot, vsock_));
  TRY(attach(layout::kRngSlot, rng_));
  TRY(attach(layout::kBalloonSlot, balloon_));
  if (!options_.debug_port) return {};
  debug_port_ = std::make_unique<DebugPort>([this](uint32_t word) { callbacks_.debug_word(t_vcpu, word); });
  return ports_.add(layout::kDebugPort, layout::kDebugPortCount, debug_port_.get());
}

Status Machine::attach(layout::VirtioSlot slot, VirtioDevice& device) {
  transports_[slot] = std::make_unique<MmioTransport>(ram_->memory(), device, edge(layout::virtio_gsi(slot)));
  return mmio_.add(layout::virtio_base(slot), layout::kVirtioWindow, transports_[slot].get());
}

Status Machine::build(const kvm::System& system) {
  TRY_ASSIGN(vm_, system.create_vm());
  const uint64_t low = std::min(ram_->size_bytes(), kLowRamEnd);
  TRY(vm_.add_memory(0, 0, low, ram_->base()));
  if (ram_->size_bytes() > low) TRY(vm_.add_memory(1, kHighRamStart, ram_->size_bytes() - low, ram_->base() + low));
  TRY(vm_.enable_split_irqchip());
  std::vector<kvm::Vcpu> vcpus;
  for (unsigned i = 0; i < options_.vcpus; i++) {
    TRY_ASSIGN(kvm::Vcpu vcpu, vm_.create_vcpu(i));
    TRY(vcpu.set_cpuid(system, options_.vcpus));
    vcpus.push_back(std::move(vcpu));
  }
  vcpus_ = std::make_unique<VcpuSet>(
      system, std::move(vcpus), [this](unsigned vcpu, kvm::Exit& exit) { return on_exit(vcpu, exit); },
      [this](unsigned vcpu, const Error& error) {
        end("internal_error", "vCPU " + std::to_string(vcpu) + ": " + error.message());
      });
  return {};
}

Status Machine::boot(const kvm::BootRegisters& registers, const GenerationId& id) {
  TRY(vcpus_->vcpus().front().set_boot_registers(registers));
  TRY(generation_id_.place(id));
  return vcpus_->start_threads();
}

Status Machine::restore(kvm::TimeMode mode, const GenerationId& id) {
  if (cpu_state_.vcpus.size() != vcpus_->vcpus().size())
    return fail(ErrorKind::kCorrupt, "saved state has " + std::to_string(cpu_state_.vcpus.size()) + " vCPUs, the machine " +
                                         std::to_string(vcpus_->vcpus().size()));
  const kvm::Moment now = kvm::this_moment();
  for (size_t i = 0; i < cpu_state_.vcpus.size(); i++)
    TRY(vcpus_->vcpus()[i].restore(cpu_state_.vcpus[i], mode, cpu_state_.clock, now.host_tsc));
  TRY(vm_.set_clock(cpu_state_.clock, mode, now));
  TRY(generation_id_.change(id));  // after the LAPICs, before the first instruction
  quiesced_ = true;
  return vcpus_->start_threads();
}

Status Machine::stand_still(Deadline deadline) {
  if (ended()) return fail(ErrorKind::kConflict, "the machine has ended");
  if (!running_ && (quiesced_ || !vcpus_)) return {};
  const Status stopped = stop_and_save(deadline);
  if (stopped) return {};
  go_on();
  return stopped;
}

Status Machine::stop_and_save(Deadline deadline) {
  running_ = false;
  TRY(vcpus_->park(deadline, [this] {
    if (debug_port_) debug_port_->interrupt();
  }));
  if (ended()) return fail(ErrorKind::kConflict, "the machine has ended");
  // Devices first: what they still complete raises interrupts, which the LAPIC state must contain.
  quiesced_ = true;
  for (const std::unique_ptr<MmioTransport>& t : transports_)
    if (t) TRY(t->quiesce(deadline));
  console_.flush();
  TRY_ASSIGN(cpu_state_.vcpus, vcpus_->save(deadline_after(kSaveLimit)));
  TRY_ASSIGN(cpu_state_.clock, vm_.clock());
  return {};
}

void Machine::go_on() {
  if (!vcpus_ || running_) return;
  if (debug_port_) debug_port_->resume();
  vcpus_->run();
  running_ = true;
  // Not before: the guest waits for nothing here. What it asks of a device meanwhile, the device finds when it resumes.
  if (quiesced_)
    for (const std::unique_ptr<MmioTransport>& t : transports_)
      if (t) t->resume();
  quiesced_ = false;
}

void Machine::after_fork() {
  if (vcpus_) vcpus_->abandon_after_fork();
  vcpus_.reset();
  vm_.close();
  console_.replace(UniqueFd());
  if (debug_port_) debug_port_->after_fork();
  for (const std::unique_ptr<MmioTransport>& t : transports_)
    if (t) t->after_fork();
  running_ = false;
  quiesced_ = true;
}

int64_t Machine::wait_entered_ns() const {
  if (!vcpus_) return 0;
  const Deadline deadline = deadline_after(kEnterLimit);
  int64_t at = vcpus_->entered_at_ns();
  while (at == 0 && MonotonicClock::now() < deadline) {
    ::sched_yield();
    at = vcpus_->entered_at_ns();
  }
  return at != 0 ? at : monotonic_ns();
}

std::vector<int> Machine::descriptors_to_keep() const {
  std::vector<int> out = ram_->descriptors();
  if (!disk_) return out;
  const std::vector<int> disk = disk_->descriptors();
  out.insert(out.end(), disk.begin(), disk.end());
  return out;
}

VmState Machine::save() const {
  VmState s;
  s.memory_bytes = ram_->size_bytes();
  s.clock = cpu_state_.clock;
  s.vcpus = cpu_state_.vcpus;
  s.ioapic = ioapic_.save();
  s.serial = serial_.save();
  for (const std::unique_ptr<MmioTransport>& t : transports_) s.virtio.push_back(t ? t->save() : std::string());
  return s;
}

Status Machine::load(VmState state) {
  if (state.virtio.size() != transports_.size())
    return fail(ErrorKind::kCorrupt, "saved state has " + std::to_string(state.virtio.size()) +
                                         " virtio slots, this machine has " + std::to_string(transports_.size()));
  ioapic_.restore(state.ioapic);
  serial_.restore(state.serial);
  for (size_t i = 0; i < transports_.size(); i++) {
    if (state.virtio[i].empty() != (transports_[i] == nullptr))
      return fail(ErrorKind::kCorrupt,
                  "saved state and machine differ in virtio slot " + std::to_string(i) + " (a disk is missing or too many)");
    if (transports_[i]) TRY(transports_[i]->restore(state.virtio[i]));
  }
  cpu_state_ = {std::move(state.vcpus), state.clock};
  quiesced_ = true;
  return {};
}

void Machine::send_message(uint64_t address, uint32_t data) {
  // No LAPIC takes it while the guest has not set itself up: the interrupt is lost, as on hardware.
  if (vm_.fd() >= 0) static_cast<void>(vm_.signal_msi(address, data));
}

bool Machine::end(std::string reason, std::string detail) {
  if (!ended_.exchange(true)) callbacks_.ended({std::move(reason), std::move(detail)});
  return false;
}

bool Machine::on_exit(unsigned vcpu, kvm::Exit& exit) {
  using Kind = kvm::Exit::Kind;
  t_vcpu = vcpu;
  switch (exit.kind) {
    case Kind::kIo: on_port(exit); return !ended();
    case Kind::kMmio: on_mmio(exit); return !ended();
    case Kind::kInterrupted:
    case Kind::kAgain:
    case Kind::kHalt: return true;
    case Kind::kShutdown: return end("triple_fault", "the guest reset itself or crashed");
    case Kind::kSystemEvent: {
      constexpr uint64_t kEventShutdown = 1, kEventReset = 2;  // KVM_SYSTEM_EVENT_*
      if (exit.detail == kEventShutdown) return end("poweroff", "asked for by the guest");
      if (exit.detail == kEventReset) return end("reset", "asked for by the guest");
      return end("panic", "system event " + std::to_string(exit.detail));
    }
    case Kind::kFailEntry:
      return end("internal_error",
                 "vCPU " + std::to_string(vcpu) + ": entry failed, hardware reason " + std::to_string(exit.detail));
    case Kind::kInternalError:
      return end("internal_error", "vCPU " + std::to_string(vcpu) + ": KVM internal error " + std::to_string(exit.detail));
    case Kind::kOther:
      return end("internal_error", "vCPU " + std::to_string(vcpu) + ": unknown exit " + std::to_string(exit.detail));
  }
  return true;
}

void Machine::on_port(const kvm::Exit& exit) {
  std::byte* p = exit.io.data;
  for (uint32_t i = 0; i < exit.io.count; i++, p += exit.io.size) {
    if (exit.io.write)
      ports_.write(exit.io.port, {p, exit.io.size});
    else
      ports_.read(exit.io.port, {p, exit.io.size});
  }
}

void Machine::on_mmio(const kvm::Exit& exit) {
  if (exit.mmio.write)
    mmio_.write(exit.mmio.address, {exit.mmio.data, exit.mmio.length});
  else
    mmio_.read(exit.mmio.address, {exit.mmio.data, exit.mmio.length});
}

}  // namespace ramet::vmm
