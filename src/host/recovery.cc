// What a new daemon does with what it finds. In this order, so that nothing is used before it is known to be ours:
//
//   1. every row with a process: the same process (pid and start time), answering on its socket, taking a new chunk socket?
//                                                                                                  adopted : ended for good
//   2. live forks that were under way: did the parent move to its next overlay? (its open files say)  chain settled
//   3. rows still `creating`, builders, zygotes not adopted: undone; parents of undone children get a Thaw
//   4. rows whose end was decided (gone, failed): finished
//   5. whatever has one of our names and no row: overlay files, directories, sockets, cgroups: deleted
//
// Every step may be interrupted by the next crash and done again. Not here: the same work in normal life (host_end.cc).
#include <dirent.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/log.h"
#include "host/agent_client.h"
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
  adopt_all(rows, rebooted);
  settle_forks();
  undo_half_made(rows);
  sweep_orphans();
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
  if (!ready) {
    log_warn(facts.id + " cannot be adopted: " + ready.error().message());
    kill_remembered_process(facts.pid, facts.pid_start);
    return false;
  }
  if (row.role == MachineRole::kZygote) {
    const Result<Template> source = template_store_->get(row.info.template_name);
    if (!source || source->digest != row.template_digest) {
      (*machine)->kill();
      (*machine)->wait_end(deadline_after(kAdoptDeadline));
      return false;
    }
    runtime_->adopt(*source, row, std::move(*machine));
    return true;
  }
  const Status placed = cgroups_.move(row.info.family_id, row.info.id, facts.pid);
  if (!placed) log_warn(placed.error().to_string());
  const std::shared_ptr<Sandbox> s = insert(row.info);
  const std::lock_guard lock(s->mutex);
  s->machine = std::move(*machine);
  return true;
}

// Adopted rows are taken out of `rows`.
void HostImpl::adopt_all(std::vector<MachineRow>& rows, bool machine_rebooted) {
  std::vector<char> adopted(rows.size(), 0);
  run_parallel(rows.size(), kAdoptThreads, [&](size_t i) {
    const MachineRow& row = rows[i];
    if (machine_rebooted || row.pid == 0) return;
    const bool wanted = row.info.state == SandboxState::kRunning && row.role != MachineRole::kBuilder;
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
      if (sandbox && info.parent_id) parents_to_thaw.insert(*info.parent_id);
      dismantle(*context_, info.id, info.family_id, nullptr);
      continue;
    }
    const bool was_running = info.state == SandboxState::kRunning;
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
  for (const std::string& id : parents_to_thaw)
    slow_->post([this, id] {
      abi::Request thaw;
      thaw.mutable_thaw();
      (void)guest_call(id, thaw, deadline_after(options_.agent_deadline)).has_value();
    });
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
