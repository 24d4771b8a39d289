#include "host/template_boot.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "base/seals.h"
#include "host/agent_client.h"
#include "host/crash_point.h"
#include "host/ids.h"

namespace ramet::host {
namespace {

constexpr uint64_t kBootDiskBytes = 4u << 20;  // of its overlay, console and rows

constexpr uint64_t kVmstateLimit = 64u << 20;

Result<UniqueFd> open_kvm(const Context& c) {
  Result<UniqueFd> kvm = open_file(c.options.kvm_device, O_RDWR);
  if (kvm) return kvm;
  return tl::unexpected<Error>(Error(ErrorKind::kUnavailable, "KVM cannot be used: " + kvm.error().message(), kvm.error().err())
                                   .with_hint("run `ramet doctor`; on a machine without KVM use `ramet machine start`"));
}

MachineRow machine_row(const Template& t, uint32_t vcpus, uint64_t memory_mib) {
  MachineRow row;
  row.template_digest = t.digest;
  row.info.template_name = t.info.name;
  row.info.vcpus = vcpus;
  row.info.memory_mib = memory_mib;
  row.info.disk_bytes = t.info.disk_bytes;
  row.base_image = disk_image_id(t.info).name;
  return row;
}

MachineRow with_id(MachineRow row, const std::string& id, MachineRole role) {
  row.role = role;
  row.info.id = row.info.family_id = id;
  row.info.created_at_ns = wall_ns();
  return row;
}

// Errors: kUnavailable (it ended), kTimeout.
Status wait_for_agent(Machine& machine, Deadline deadline) {
  while (MonotonicClock::now() < deadline) {
    if (const std::optional<MachineEnd> end = machine.end())
      return fail(ErrorKind::kUnavailable, "the guest ended before its agent answered (" + end->reason +
                                               (end->detail.empty() ? "" : ": " + end->detail) + ")");
    Result<UniqueFd> stream = machine.agent_stream(std::min(deadline, deadline_after(Milliseconds(2000))));
    if (stream) {
      abi::Request ping;
      ping.mutable_ping();
      const Result<abi::Result> pong =
          agent_call(std::move(*stream), ping, std::min(deadline, deadline_after(Milliseconds(5000))));
      if (pong && pong->has_pong()) return {};
    }
    std::this_thread::sleep_for(Milliseconds(50));
  }
  return fail(ErrorKind::kTimeout, "the guest's agent did not answer in time");
}

Result<std::shared_ptr<Machine>> start_monitor(const Context& c, const std::string& id, vmm::Bootstrap& b, const FdsToSend& fds,
                                               Deadline deadline) {
  TRY_ASSIGN(std::shared_ptr<Machine> machine,
             Machine::start(c.machine_options(id), {c.options.vmm_program, c.paths.machine_dir(id) + "/monitor.log"}, b, fds,
                            deadline));
  const Status moved = c.resources.cgroups.move(id, id, machine->facts().pid);
  if (!moved) log_warn(moved.error().to_string());
  return machine;
}

Result<std::shared_ptr<Machine>> start_builder(const Context& c, const std::string& id, const std::string& overlay,
                                               const Template& t, const TemplateFiles& files, uint32_t vcpus,
                                               uint64_t memory_mib, Deadline deadline) {
  TRY_ASSIGN(const UniqueFd kvm, open_kvm(c));
  TRY_ASSIGN(const UniqueFd base, c.images.server().attach(files.disk));
  TRY_ASSIGN(const MachineFiles own, c.resources.prepare(id, id, 0, overlay));
  crash_point("boot.files");
  FdsToSend fds;
  vmm::Bootstrap b;
  b.set_sandbox_id(id);
  b.set_kvm_fd(fds.add(kvm.get()));
  b.set_listen_fd(fds.add(own.listen.get()));
  b.set_console_fd(fds.add(own.console.get()));
  b.set_debug_port(c.options.agent == AgentUse::kNone);  // tiny guests talk through it
  b.mutable_boot()->set_kernel_fd(fds.add(files.kernel.get()));
  b.mutable_boot()->set_initrd_fd(fds.add(files.initrd.get()));
  b.mutable_boot()->set_cmdline("console=ttyS0 reboot=t panic=-1 quiet" + (t.info.cmdline.empty() ? "" : " " + t.info.cmdline));
  b.mutable_boot()->set_vcpus(vcpus);
  b.mutable_boot()->set_memory_bytes(memory_mib << 20);
  vmm::DiskSetup& disk = *b.add_disks();
  disk.set_id("vda");
  disk.set_chunk_fd(fds.add(base.get()));
  disk.set_size_bytes(t.info.disk_bytes);
  add_overlay(*disk.mutable_writable(), fds, *own.overlay);
  TRY_ASSIGN(std::shared_ptr<Machine> machine, start_monitor(c, id, b, fds, deadline));
  return machine;
}

// Everything between the running builder and the image; the caller dismantles the builder whatever comes out.
Result<MachineImage> capture(const Context& c, const std::string& overlay, const Template& t, uint32_t vcpus,
                             uint64_t memory_mib, Machine& builder, Deadline deadline) {
  if (c.options.agent == AgentUse::kRequired) {
    TRY(wait_for_agent(builder, deadline));
    crash_point("boot.agent_ready");
    TRY_ASSIGN(UniqueFd stream, builder.agent_stream(deadline));
    abi::Request drop;
    drop.mutable_drop_caches();
    TRY(agent_call(std::move(stream), drop, deadline));
  } else if (!builder.wait_first_word(deadline)) {
    return fail(ErrorKind::kTimeout, "the tiny guest said nothing");
  }
  MachineImage image;
  image.row = machine_row(t, vcpus, memory_mib);
  image.row.base_memory = new_id("sn");  // under which it is stored when a snapshot first stands on it
  TRY_ASSIGN(image.vmstate, make_memfd("ramet-vmstate", 0));
  TRY_ASSIGN(image.memory_even, make_memfd("ramet-memory-even", memory_mib << 20));
  TRY_ASSIGN(image.memory_odd, make_memfd("ramet-memory-odd", memory_mib << 20));
  FdsToSend fds;
  vmm::Request request;
  request.mutable_capture()->set_vmstate_fd(fds.add(image.vmstate.get()));
  request.mutable_capture()->set_memory_even_fd(fds.add(image.memory_even.get()));
  request.mutable_capture()->set_memory_odd_fd(fds.add(image.memory_odd.get()));
  TRY_ASSIGN(const MonitorReply reply, builder.call(std::move(request), fds, deadline));
  if (!reply.response.has_captured()) return fail(ErrorKind::kCorrupt, "the monitor answered Capture with something else");
  crash_point("boot.captured");
  const vmm::Captured& captured = reply.response.captured();
  image.stored_bytes = captured.stored_bytes();
  for (const std::string& disk : captured.frozen_disks())
    if (disk == "vda") image.overlay = overlay;
  // Writable mappings of the builder would defeat the seal: it has to be gone first.
  vmm::Request stop;
  stop.mutable_stop();
  (void)builder.call(std::move(stop), {}, deadline_after(Milliseconds(2000)));
  if (!builder.wait_end(deadline_after(Milliseconds(5000)))) {
    builder.kill();
    if (!builder.wait_end(deadline_after(Milliseconds(10'000))))
      return fail(ErrorKind::kTimeout, "the building monitor does not end");
  }
  TRY_ASSIGN(const uint64_t vmstate_bytes, file_size(image.vmstate.get()));
  if (vmstate_bytes == 0 || vmstate_bytes > kVmstateLimit || vmstate_bytes != captured.vmstate_bytes())
    return fail(ErrorKind::kCorrupt, "machine state of " + std::to_string(vmstate_bytes) + " bytes, the monitor said " +
                                         std::to_string(captured.vmstate_bytes()));
  for (UniqueFd* fd : {&image.vmstate, &image.memory_even, &image.memory_odd}) TRY(seal_image_file(*fd));
  crash_point("boot.sealed");
  return image;
}

}  // namespace

Status seal_image_file(UniqueFd& fd) {
  if (::fchmod(fd.get(), 0400) < 0) return fail_errno("chmod of an image");
  TRY(seal_file(fd.get()));
  TRY_ASSIGN(UniqueFd read_only, reopen(fd.get(), O_RDONLY));
  fd = std::move(read_only);
  return {};
}

std::string console_tail(const Context& c, const std::string& id, size_t limit) {
  const Result<std::string> text = c.resources.console_text(id, limit);
  if (!text || text->empty()) return {};
  return printable(*text, limit);
}

Result<MachineImage> boot_template(const Context& c, const Template& t, uint32_t vcpus, uint64_t memory_mib) {
  TRY_ASSIGN(TemplateFiles files, c.templates.open_files(t));
  Result<Admission::Reservation> room = c.admission.reserve(boot_bytes(memory_mib << 20), kBootDiskBytes);
  if (!room) {
    Error error =
        std::move(room).error().with_context("boot template '" + t.info.name + "' with " + std::to_string(memory_mib) + " MiB");
    if (error.kind() == ErrorKind::kNoMemory)
      error = std::move(error).with_hint("ask for less memory, or end sandboxes that are not needed");
    return tl::unexpected<Error>(std::move(error));
  }
  const std::string id = new_id("bl"), overlay = new_id("ov");
  TRY(c.registry.add_machine(with_id(machine_row(t, vcpus, memory_mib), id, MachineRole::kBuilder), {}, overlay));
  crash_point("boot.journalled");
  const int64_t begin = monotonic_ns();
  const Deadline deadline = deadline_after(c.options.boot_deadline);
  Result<std::shared_ptr<Machine>> builder = start_builder(c, id, overlay, t, files, vcpus, memory_mib, deadline);
  if (builder) crash_point("boot.started");
  Result<MachineImage> image = builder ? capture(c, overlay, t, vcpus, memory_mib, **builder, deadline)
                                       : Result<MachineImage>(tl::unexpected<Error>(builder.error()));
  if (!image) {
    const std::string tail = console_tail(c, id);
    dismantle(c, id, id, builder ? *builder : nullptr);
    Error error = std::move(image).error().with_context("template '" + t.info.name + "' did not boot");
    if (!tail.empty())
      error = Error(error.kind(), error.message() + "; its console ends with:\n" + tail, error.err()).with_hint(error.hint());
    return tl::unexpected<Error>(std::move(error));
  }
  if (!image->overlay.empty()) TRY(c.registry.set_overlay_state(overlay, OverlayState::kFrozen));
  image->builder = id;
  image->disk = std::move(files.disk);
  log_info("template '" + t.info.name + "' booted in " + std::to_string((monotonic_ns() - begin) / 1'000'000) + " ms, " +
           std::to_string(image->stored_bytes >> 20) + " MiB of " + std::to_string(memory_mib) + " MiB kept");
  return image;
}

Result<std::shared_ptr<Machine>> start_zygote(const Context& c, const MachineImage& image) {
  const std::string id = new_id("zy");
  const MachineRow row = with_id(image.row, id, MachineRole::kZygote);
  std::vector<std::string> chain;
  if (!image.overlay.empty()) chain.push_back(image.overlay);
  TRY(c.registry.add_machine(row, chain, {}));
  crash_point("zygote.journalled");
  const auto start = [&]() -> Result<std::shared_ptr<Machine>> {
    const Deadline deadline = deadline_after(c.options.child_deadline);
    TRY_ASSIGN(const UniqueFd kvm, open_kvm(c));
    TRY_ASSIGN(const UniqueFd base, c.images.server().attach(image.disk));
    TRY_ASSIGN(const MachineFiles own, c.resources.prepare(id, id, 0, {}));
    FdsToSend fds;
    vmm::Bootstrap b;
    b.set_sandbox_id(id);
    b.set_kvm_fd(fds.add(kvm.get()));
    b.set_listen_fd(fds.add(own.listen.get()));
    b.set_console_fd(fds.add(own.console.get()));
    b.set_debug_port(c.options.agent == AgentUse::kNone);
    b.mutable_image()->set_vmstate_fd(fds.add(image.vmstate.get()));
    b.mutable_image()->set_memory_even_fd(fds.add(image.memory_even.get()));
    b.mutable_image()->set_memory_odd_fd(fds.add(image.memory_odd.get()));
    b.mutable_image()->set_zero_map(image.zero_map);
    vmm::DiskSetup& disk = *b.add_disks();
    disk.set_id("vda");
    disk.set_chunk_fd(fds.add(base.get()));
    disk.set_size_bytes(row.info.disk_bytes);
    OverlayReadFiles frozen;
    if (!image.overlay.empty()) {
      TRY_ASSIGN(frozen, c.resources.overlays.open_read(image.overlay));
      vmm::OverlayFds& o = *disk.add_frozen();
      o.set_id(frozen.id);
      o.set_data_ro_fd(fds.add(frozen.data_ro.get()));
      o.set_log_ro_fd(fds.add(frozen.log_ro.get()));
    }
    return start_monitor(c, id, b, fds, deadline);
  };
  Result<std::shared_ptr<Machine>> machine = start();
  if (!machine) {
    dismantle(c, id, id, nullptr);
    return tl::unexpected<Error>(
        std::move(machine).error().with_context("the zygote of template '" + row.info.template_name + "' did not start"));
  }
  crash_point("zygote.started");
  SandboxInfo running = row.info;
  TRY(c.registry.set_running({running}));
  crash_point("zygote.committed");
  return machine;
}

}  // namespace ramet::host
