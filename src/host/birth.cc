#include "host/birth.h"

#include <thread>

#include "base/log.h"
#include "base/userfault.h"
#include "host/agent_client.h"
#include "host/crash_point.h"
#include "host/ids.h"

namespace ramet::host {
namespace {

constexpr uint32_t kWaitGenerationMs = 2000;

Status join(const Context& c, Birth& b, UniqueFd pidfd, Deadline deadline) {
  b.bootstrap.theirs.reset();  // the child has its own: a dead one must read as a hang-up
  Machine::Options options = c.machine_options(b.row.info.id);
  options.filler = b.filler;
  TRY_ASSIGN(b.machine, Machine::join_child(options, b.bootstrap.ours.get(), std::move(pidfd), deadline));
  return {};
}

// The reset of its parent's connections, or its start after Commit, may still be under way: refused means try again.
Result<UniqueFd> reach_agent(Machine& machine, Deadline deadline) {
  for (;;) {
    Result<UniqueFd> stream = machine.agent_stream(deadline);
    if (stream || (stream.error().kind() != ErrorKind::kUnavailable && stream.error().kind() != ErrorKind::kConflict))
      return stream;
    if (!machine.alive()) return fail(ErrorKind::kUnavailable, "the new machine ended: " + machine.end()->reason);
    if (MonotonicClock::now() >= deadline) return stream;
    std::this_thread::sleep_for(Milliseconds(10));
  }
}

Status identify(const Context& c, Birth& b, ForkStrictness strictness, Deadline deadline) {
  if (c.options.agent == AgentUse::kNone) return {};
  TRY_ASSIGN(UniqueFd stream, reach_agent(*b.machine, deadline));
  AgentChannel channel(std::move(stream));
  abi::Request request;
  abi::Identify& who = *request.mutable_identify();
  who.set_entropy(random_bytes(64));
  who.set_wait_vmgenid_ms(kWaitGenerationMs);
  who.set_sandbox_id(b.row.info.id);
  who.set_hostname(b.row.info.id);
  who.set_machine_id(new_machine_id());
  who.set_thaw(strictness == ForkStrictness::kStrict);
  who.set_wall_clock_ns(wall_ns());  // last: nothing but the way lies between it and the guest
  TRY(channel.send(request, deadline));
  TRY_ASSIGN(const abi::Result result, channel.receive_result(deadline));
  TRY(check_result(result));
  if (result.identified().took_us() > 500'000)
    log_info(b.row.info.id + ": its agent took " + std::to_string(result.identified().took_us() / 1000) +
             " ms to take its identity, new generation " + (result.identified().vmgenid_seen() ? "seen" : "not seen"));
  if (!result.has_identified() || !result.identified().crng_reseeded())
    return fail(ErrorKind::kInternal, "the agent did not confirm that its random numbers are fresh");
  return {};
}

}  // namespace

Status prepare_birth(const Context& c, Birth& b, BirthStart start) {
  const SandboxInfo& info = b.row.info;
  TRY_ASSIGN(b.files, c.resources.prepare(info.id, info.family_id, c.family_memory_max(info.memory_mib), b.overlay));
  TRY_ASSIGN(b.bootstrap, make_bootstrap_pair());
  FdsToSend fds;
  vmm::ChildSetup setup;
  setup.set_sandbox_id(info.id);
  setup.set_listen_fd(fds.add(b.files.listen.get()));
  setup.set_console_fd(fds.add(b.files.console.get()));
  vmm::DiskSetup& disk = *setup.add_disks();
  disk.set_id("vda");
  TRY_ASSIGN(const std::string base_image, c.registry.base_image(info.id));
  UniqueFd base;
  if (!base_image.empty()) {
    TRY_ASSIGN(base, c.chunk_socket(base_image));
    disk.set_chunk_fd(fds.add(base.get()));
  }
  add_overlay(*disk.mutable_writable(), fds, *b.files.overlay);
  setup.set_generation_id(random_bytes(16));
  UniqueFd userfault_device;
  if (b.filler) {
    TRY_ASSIGN(userfault_device, open_userfault_device());
    setup.set_userfault_device_fd(fds.add(userfault_device.get()));
  }
  setup.set_start_on_commit(start == BirthStart::kOnCommit);
  TRY(vmm::control::send(b.bootstrap.ours.get(), setup, fds.fds(), deadline_after(Milliseconds(1000))));
  b.files = MachineFiles{};  // they travel in the socket now; ours would keep them open in the daemon
  return {};
}

void finish_birth(const Context& c, Birth& b, UniqueFd pidfd, ForkStrictness strictness, BirthKind kind) {
  const Deadline deadline = deadline_after(c.options.child_deadline);
  const bool create = kind == BirthKind::kCreate;
  Status done = join(c, b, std::move(pidfd), deadline);
  if (done) {
    crash_point(create ? "create.committed" : "fork.committed");
    const vmm::Ready& ready = b.machine->facts().ready;
    b.row.info.generation = ready.generation();
    const int64_t running = ready.running_at_ns() != 0 ? ready.running_at_ns() : monotonic_ns();
    b.row.info.timing.fork_ms = ms_between(b.fork_requested_at_ns, running);
    done = identify(c, b, strictness, deadline);
    const int64_t now = monotonic_ns();
    b.row.info.timing.identify_ms = ms_between(running, now);
    b.row.info.timing.total_ms = ms_between(b.requested_at_ns, now);
    b.ready_ms = b.row.info.timing.total_ms;
  }
  const std::optional<Error> missing = b.filler ? b.filler->trouble() : std::nullopt;
  if (!done && missing)
    b.error = Error(*missing).with_context("memory of the new machine");
  else if (!done)
    b.error = done.error();
  else
    crash_point(create ? "create.identified" : "fork.identified");
}

void undo_birth(const Context& c, Birth& b) {
  b.bootstrap = BootstrapPair{};  // a child that was not committed ends by this
  dismantle(c, b.row.info.id, b.row.info.family_id, b.machine);
  b.machine.reset();
}

}  // namespace ramet::host
