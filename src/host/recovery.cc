// What a new daemon does with what it finds. In this order, so that nothing is used before it is known to be ours:
//
//   0. rollbacks that were cut: a sandbox that did not run again is what was put aside, and `pausing`
//   1. every row with a process: the same process (pid and start time), answering on its socket, taking a new chunk socket?
//                                                                                                  adopted : ended for good
//   2. live forks that were under way: did the parent move to its next overlay? (its open files say)  chain settled
//   3. rows still `creating`, builders, frozen ones, asides, zygotes not adopted: undone; parents of undone children get a Thaw
//   4. rows `pausing`: they go on; `resuming`: their saved state counts again; `paused`: what they still have goes
//   5. rows whose end was decided (gone, failed): finished
//   6. whatever has one of our names and no row: overlay files, directories, sockets, cgroups: deleted
//
// Every step may be interrupted by the next crash and done again. Not here: the same work in normal life (host_end.cc).
#include <dirent.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/log.h"
#include "host/agent_client.h"
#include "host/crash_point.h"
#include "host/host_impl.h"
#include "host/ids.h"

namespace ramet::host {
namespace {

constexpr Milliseconds kAdoptDeadline{5000};
constexpr size_t kAdoptThreads = 16;

std::string boot_id() {
  Result<std::string> id = read_file("/proc/sys/kernel/random/boot_id", 64);
  if (!id) return "unknown";
  while (!id->empty() && id->back() == '\n') id->pop_back();
  return *id;
}

std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> out;
  if (DIR* d = ::opendir(dir.c_str())) {
    while (const dirent* e = ::readdir(d))
      if (e->d_name[0] != '.') out.emplace_back(e->d_name);
    ::closedir(d);
  }
  return out;
}

}  // namespace

Status HostImpl::recover() {
  TRY_ASSIGN(const bool rebooted, registry_->note_boot(boot_id()));
  template_store_->sweep();
  TRY_ASSIGN(std::vector<MachineRow> rows, registry_->machines());
  TRY(settle_rollbacks(rows, rebooted));
  adopt_all(rows, rebooted);
  settle_forks();
  undo_half_made(rows);
  sweep_orphans();
  return {};
}

Status HostImpl::settle_rollbacks(std::vector<MachineRow>& rows, bool machine_rebooted) {
  bool any = false;
  for (const MachineRow& aside : rows) {
    if (aside.role != MachineRole::kAside || !aside.info.parent_id) continue;
    const Result<MachineRow> row = registry_->machine(*aside.info.parent_id);
    if (!row || row->info.state != SandboxState::kResuming) continue;  // decided
    if (!machine_rebooted) kill_remembered_process(static_cast<pid_t>(row->pid), row->pid_start);
    TRY(registry_->bring_back(row->info.id, aside.info.id));
    restore_socket(row->info.id, aside.info.id);
    any = true;
  }
  if (!any) return {};
  TRY_ASSIGN(rows, registry_->machines());
  return {};
}

bool HostImpl::adopt_one(const MachineRow& row) {
  MachineFacts facts;
  facts.id = row.info.id;
  facts.pid = static_cast<pid_t>(row.pid);
  facts.pid_start = row.pid_start;
  facts.ram_address = row.ram_address;
  facts.ram_bytes = row.ram_bytes;
  facts.generation = row.info.generation;
  Result<std::shared_ptr<Machine>> machine =
      Machine::adopt(context_->machine_options(facts.id), facts, deadline_after(kAdoptDeadline));
  Status ready = machine ? attach_base(row, **machine) : Status(tl::unexpected<Error>(machine.error()));
  if (ready) ready = take_over_filling(row, **machine);
  if (!ready) {
    log_warn(facts.id + " cannot be adopted: " + ready.error().message());
    kill_remembered_process(facts.pid, facts.pid_start);
    return false;
  }
  if (row.role == MachineRole::kZygote) {
    // Of a snapshot: another is made as quickly.
    const bool of_snapshot =
        base_image_id(row.base_image).space == ImageSpace::kSnapshot && !snapshots_->is_of_template(row.base_image);
    const Result<Template> source =
        of_snapshot ? fail(ErrorKind::kNotFound, "of a snapshot") : template_store_->get(row.info.template_name);
    // What is missing in its files nobody would bring to its children.
    const Result<MemoryFilePair> files = open_memory_files(facts.pid, row.base_memory);
    const bool complete = !files || is_complete(*files);
    if (!source || source->digest != row.template_digest || !complete) {
      (*machine)->kill();
      (*machine)->wait_end(deadline_after(kAdoptDeadline));
      return false;
    }
    zygotes_->adopt(*source, row, std::move(*machine));
    return true;
  }
  const Status placed = cgroups_.move(row.info.family_id, row.info.id, facts.pid);
  if (!placed) log_warn(placed.error().to_string());
  SandboxInfo info = row.info;
  if (info.state == SandboxState::kPausing && !go_on_after_pause(**machine, info)) return false;
  const std::shared_ptr<Sandbox> s = insert(info);
  const std::lock_guard lock(s->mutex);
  s->machine = std::move(*machine);
  return true;
}

// Its memory was still on its way: whoever waits for some goes on waiting until it is answered here.
Status HostImpl::take_over_filling(const MachineRow& row, Machine& machine) {
  if (row.base_memory.empty() || row.role != MachineRole::kSandbox) return {};
  vmm::Request request;
  request.mutable_get_userfault();
  Result<MonitorReply> reply = machine.call(std::move(request), {}, deadline_after(kAdoptDeadline));
  if (!reply && reply.error().kind() == ErrorKind::kNotFound) return {};
  if (!reply) return tl::unexpected<Error>(reply.error());
  const vmm::Userfault& answer = reply->response.userfault();
  TRY_ASSIGN(UniqueFd userfault, reply->fds.take(answer.userfault_fd(), "userfault"));
  TRY_ASSIGN(const std::shared_ptr<MemoryFiller> filler, snapshots_->fill_on(row.base_memory, machine.facts().pid));
  if (!filler) return {};
  filler->claim(row.info.family_id);
  TRY_ASSIGN(std::unique_ptr<MemoryFiller::Faults> faults, filler->serve(std::move(userfault), answer.ram_address()));
  machine.serve_faults(std::move(faults));
  crash_point("adopt.faults");
  return {};
}

// Its saved state was not noted: the machine is what counts, and may stand still.
bool HostImpl::go_on_after_pause(Machine& machine, SandboxInfo& info) {
  const Status runs = run_on(machine);
  info.state = SandboxState::kRunning;
  if (const Status noted = registry_->set_state(info.id, info.state); !runs || !noted) {
    log_warn(info.id + " cannot go on after a pause that was cut: " + (runs ? noted : runs).error().message());
    machine.kill();
    machine.wait_end(deadline_after(kAdoptDeadline));
    return false;
  }
  thaw_soon(info.id);
  return true;
}

// A fork, snapshot or pause may have been cut after it had frozen the user tasks.
void HostImpl::thaw_soon(const std::string& id) {
  slow_->post([this, id] {
    const Result<Running> r = find_running(id);  // nothing of a paused one is frozen, and it is not woken for this
    if (!r) return;
    const Deadline deadline = deadline_after(options_.agent_deadline);
    Result<UniqueFd> stream = r->machine->agent_stream(deadline);
    abi::Request thaw;
    thaw.mutable_thaw();
    if (stream) (void)agent_call(*std::move(stream), thaw, deadline).has_value();
  });
}

// Adopted rows are taken out of `rows`.
void HostImpl::adopt_all(std::vector<MachineRow>& rows, bool machine_rebooted) {
  std::vector<char> adopted(rows.size(), 0);
  run_parallel(rows.size(), kAdoptThreads, [&](size_t i) {
    const MachineRow& row = rows[i];
    if (machine_rebooted || row.pid == 0) return;
    const bool runs = row.info.state == SandboxState::kRunning || row.info.state == SandboxState::kPausing;
    const bool wanted = runs && (row.role == MachineRole::kSandbox || row.role == MachineRole::kZygote);
    if (wanted)
      adopted[i] = adopt_one(row);
    else
      kill_remembered_process(static_cast<pid_t>(row.pid), row.pid_start);
  });
  std::vector<MachineRow> rest;
  size_t sandboxes = 0;
  for (size_t i = 0; i < rows.size(); i++) {
    if (adopted[i]) {
      sandboxes += rows[i].role == MachineRole::kSandbox;
      continue;
    }
    if (machine_rebooted) rows[i].info.state_reason = "the host was restarted";
    rest.push_back(std::move(rows[i]));
  }
  if (sandboxes != 0) log_info("adopted " + std::to_string(sandboxes) + " running sandboxes");
  rows = std::move(rest);
}

void HostImpl::settle_forks() {
  const Result<std::vector<PendingFork>> forks = registry_->pending_forks();
  if (!forks) return;
  for (const PendingFork& f : *forks) {
    bool swapped = false;
    // The adopting Ping was answered, so a fork asked for before it is over.
    if (const Result<std::shared_ptr<Sandbox>> parent = find(f.parent)) {
      const std::lock_guard lock((*parent)->mutex);
      if ((*parent)->machine) swapped = process_has_open((*parent)->machine->facts().pid, paths_.overlay_data(f.parent_next));
    }
    (void)fork_outcomes_
        ->note({.id = f.id, .parent = f.parent, .parent_next = f.parent_next, .children = {}, .child_overlays = {}}, swapped)
        .has_value();
  }
}

void HostImpl::undo_half_made(const std::vector<MachineRow>& rows) {
  std::set<std::string> parents_to_thaw;
  for (const MachineRow& row : rows) {
    const SandboxInfo& info = row.info;
    const bool sandbox = row.role == MachineRole::kSandbox;
    if (!sandbox || info.state == SandboxState::kCreating) {
      if (info.parent_id) parents_to_thaw.insert(*info.parent_id);
      dismantle(*context_, info.id, info.family_id, nullptr);
      continue;
    }
    if (!row.saved.empty() && info.state != SandboxState::kGone && info.state != SandboxState::kFailed) {
      keep_paused(row);
      continue;
    }
    const bool was_running = info.state == SandboxState::kRunning || info.state == SandboxState::kPausing;
    const SandboxState state = was_running ? SandboxState::kFailed : info.state;
    const std::string reason = !was_running                ? info.state_reason
                               : info.state_reason.empty() ? "its monitor ended while the daemon was away"
                                                           : info.state_reason;
    insert(info);
    {
      const Result<std::shared_ptr<Sandbox>> s = [&]() -> Result<std::shared_ptr<Sandbox>> {
        const std::lock_guard lock(mutex_);
        return sandboxes_[info.id];
      }();
      const std::lock_guard lock((*s)->mutex);
      (*s)->info.state = state;
      (*s)->info.state_reason = reason;
    }
    if (was_running) (void)registry_->set_ended(info.id, state, reason).has_value();
    resources_.release(info.id, info.family_id, state == SandboxState::kFailed);
    (void)registry_->release_machine(info.id).has_value();
  }
  // Leaves of the tree first go those without descendants.
  for (const MachineRow& row : rows)
    if (row.role == MachineRole::kSandbox && row.info.state == SandboxState::kGone)
      forget_childless(row.info.id, row.info.state_reason);
  for (const std::string& id : parents_to_thaw) thaw_soon(id);
}

// Paused, or on its way back: what it is saved in counts, and nothing else.
void HostImpl::keep_paused(const MachineRow& row) {
  SandboxInfo info = row.info;
  if (const Status noted = registry_->set_paused(info.id, row.saved); !noted) log_error(noted.error().to_string());
  info.state = SandboxState::kPaused;
  info.state_reason.clear();
  info.expires_at_ns.reset();
  give_back(info);
  insert(info);
}

void HostImpl::sweep_orphans() {
  std::set<std::string> ids;
  if (const Result<std::vector<MachineRow>> rows = registry_->machines()) {
    for (const MachineRow& r : *rows) ids.insert(r.info.id);
  } else {
    return;  // without the list everything would look like an orphan
  }
  std::set<std::string> overlays;
  if (const Result<std::vector<OverlayRow>> rows = registry_->overlays()) {
    for (const OverlayRow& r : *rows) overlays.insert(r.id);
  } else {
    return;
  }
  std::error_code ec;
  for (const std::string& name : names_in(paths_.machines()))
    if (!ids.count(name)) std::filesystem::remove_all(paths_.machine_dir(name), ec);
  for (const std::string& name : names_in(paths_.sockets()))
    if (!ids.count(name.substr(0, name.find('.')))) ::unlink((paths_.sockets() + "/" + name).c_str());
  if (const Result<std::vector<std::string>> present = overlays_.present())
    for (const std::string& id : *present)
      if (!overlays.count(id)) slow_->post([this, id] { (void)overlays_.remove(id).has_value(); });
  for (const auto& [family, leaf] : cgroups_.leaves())
    if (!ids.count(leaf) && cgroups_.members(family, leaf).empty()) (void)cgroups_.remove_leaf(family, leaf).has_value();
  for (const std::string& family : cgroups_.families()) (void)cgroups_.remove_family(family).has_value();
}

}  // namespace ramet::host
