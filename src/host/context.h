// host/context.h - what the parts of one host share, by reference, wired once in host_impl. No behaviour.
// Thread: every part is safe for any thread by itself. Owner: HostImpl; outlives everything that holds a reference.
#pragma once

#include <functional>
#include <string>

#include "host/admission.h"
#include "host/fork_outcomes.h"
#include "host/host.h"
#include "host/images/images.h"
#include "host/machine.h"
#include "host/paths.h"
#include "host/registry.h"
#include "host/resources.h"
#include "host/template_store.h"
#include "host/watcher.h"

namespace ramet::host {

// The name under which rows know the base of a disk: a template's by its digest, a snapshot's by its id.
ImageId base_image_id(const std::string& name);

struct Context {
  const HostOptions& options;
  const Paths& paths;
  Registry& registry;
  ForkOutcomes& fork_outcomes;
  Images& images;
  TemplateStore& templates;
  Resources& resources;
  Watcher& watcher;
  Admission& admission;
  // A machine's process ended (watcher's thread; must not block).
  Machine::OnEnd on_machine_end;
  // Chains changed: overlays may be unused or waiting to be sealed.
  std::function<void()> overlays_changed;
  // Children of this machine that still stand in its cgroup leaf go to their own.
  std::function<void(const std::string& family, const std::string& id)> evacuate_leaf;

  Machine::Options machine_options(const std::string& id) const {
    return {watcher, id, paths.socket(id), on_machine_end, [this](const MachineFacts& f) {
              return registry.set_process(f.id, f.pid, f.pid_start, f.ram_address, f.ram_bytes, f.generation);
            }};
  }
  // A socket over which a monitor reads this base of a disk.   Errors: those of ImageStore::use, by errno.
  Result<UniqueFd> chunk_socket(const std::string& base_image) const {
    TRY_ASSIGN(std::shared_ptr<OpenImage> image, images.store().use(base_image_id(base_image)));
    return images.server().attach(std::move(image));
  }
  uint64_t family_memory_max(uint64_t memory_mib) const {
    if (options.family_memory_factor <= 0) return 0;
    return static_cast<uint64_t>(options.family_memory_factor * static_cast<double>(memory_mib << 20)) + (uint64_t{256} << 20);
  }
};

// Ends a machine for good: process, files, cgroup, row. `machine` may be null (then by what the registry remembers).
void dismantle(const Context& context, const std::string& id, const std::string& family,
               const std::shared_ptr<Machine>& machine);

// An overlay as a monitor gets it.
void add_overlay(vmm::OverlayFds& out, FdsToSend& fds, const OverlayFiles& overlay);

}  // namespace ramet::host
