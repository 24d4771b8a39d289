// Keeps overlay chains short. A machine that was forked often stands on many frozen overlays. Those that newer ones cover
// wholly its monitor lets go by itself, and the registry follows; if more than options.longest_overlay_chain are left they are
// merged into one, offline, beside the running machine, which then swaps them (vmm/control ReplaceFrozen) and so do its later
// children. The old ones live on for whoever else stands on them. Without this a chain would end at the monitor's limit of 250
// layers. A crash in the middle leaves an unused overlay, which recovery deletes, or a machine on a merged overlay that the
// registry does not know: it goes on by its open descriptors, only its files are deleted early. Thread: slow.
#include <algorithm>
#include <set>

#include "base/log.h"
#include "host/host_impl.h"
#include "host/ids.h"
#include "image/merge.h"

namespace ramet::host {
namespace {

Result<image::OverlayFiles> open_for_merge(const OverlayStore& store, const std::string& id) {
  TRY_ASSIGN(OverlayReadFiles f, store.open_read(id));
  return image::overlay_from_descriptors(id, {}, std::move(f.data_ro), {}, std::move(f.log_ro));
}

// The union of `frozen` as a new overlay.
Status merge_into(const OverlayStore& store, const std::vector<std::string>& frozen, const std::string& merged,
                  uint64_t size_bytes) {
  std::vector<image::OverlayFiles> inputs;
  for (const std::string& id : frozen) {
    TRY_ASSIGN(image::OverlayFiles files, open_for_merge(store, id));
    inputs.push_back(std::move(files));
  }
  TRY_ASSIGN(OverlayFiles made, store.create(merged));
  image::OverlayFiles out = image::overlay_from_descriptors(merged, std::move(made.data_rw), std::move(made.data_ro),
                                                            std::move(made.log_rw), std::move(made.log_ro));
  TRY(image::merge_overlays(std::move(inputs), size_bytes / 4096, out));
  return {};
}

}  // namespace

void HostImpl::shorten_chains() {
  for (const std::shared_ptr<Sandbox>& s : all_sandboxes()) {
    std::string id;
    {
      const std::lock_guard lock(s->mutex);
      if (s->info.state != SandboxState::kRunning || s->ending) continue;
      id = s->info.id;
    }
    const Result<std::vector<std::string>> chain = registry_->chain(id);
    if (!chain || chain->size() <= options_.longest_overlay_chain + 1) continue;
    if (Status done = shorten_chain(id); !done)
      log_warn("overlays of sandbox " + id + " stay as many as they are: " + done.error().message());
  }
}

Status HostImpl::shorten_chain(const std::string& id) {
  TRY_ASSIGN(const Running r, find_running(id));
  TRY(fork_outcomes_->note_all_of(id));
  TRY_ASSIGN(const std::vector<std::string> frozen, forget_covered(r));
  if (frozen.size() <= options_.longest_overlay_chain || (frozen.size() == 1 && frozen[0] == r.sandbox->merged_overlay))
    return {};
  uint64_t bytes = 0;
  for (const std::string& o : frozen) bytes += overlays_.allocated_bytes(o);
  TRY_ASSIGN(const Admission::Reservation room, admission_.reserve(0, bytes));
  const std::string merged = new_id("ov");
  TRY(registry_->add_merged(merged));
  TRY(merge_into(overlays_, frozen, merged, r.info.disk_bytes));

  const std::lock_guard no_fork(r.sandbox->fork_mutex);  // a fork journals its children on the present chain
  const std::lock_guard for_the_monitor(r.machine->fork_lock());
  TRY(fork_outcomes_->note_all_of(id));
  TRY_ASSIGN(std::vector<std::string> now, forget_covered(r));  // it may have been forked while we merged
  const auto first = std::search(now.begin(), now.end(), frozen.begin(), frozen.end());
  if (first == now.end()) return {};  // some were let go meanwhile: the next round sees less
  TRY_ASSIGN(const OverlayReadFiles files, overlays_.open_read(merged));
  FdsToSend fds;
  vmm::Request request;
  vmm::ReplaceFrozen& replace = *request.mutable_replace_frozen();
  replace.set_disk_id("vda");
  replace.set_first(static_cast<uint32_t>(first - now.begin()));
  replace.set_count(static_cast<uint32_t>(frozen.size()));
  replace.mutable_merged()->set_id(merged);
  replace.mutable_merged()->set_data_ro_fd(fds.add(files.data_ro.get()));
  replace.mutable_merged()->set_log_ro_fd(fds.add(files.log_ro.get()));
  TRY(r.machine->call(std::move(request), fds, deadline_after(options_.agent_deadline)));
  *first = merged;
  now.erase(first + 1, first + static_cast<ptrdiff_t>(frozen.size()));
  TRY(registry_->set_frozen(id, now));
  r.sandbox->merged_overlay = merged;
  log_info("sandbox " + id + ": " + std::to_string(frozen.size()) + " frozen overlays merged into one");
  context_->overlays_changed();
  return {};
}

// What its monitor still stands on, of what we gave it; the registry forgets the rest. A monitor that lies here loses its own
// disk.
Result<std::vector<std::string>> HostImpl::forget_covered(const Running& r) {
  vmm::Request request;
  request.mutable_get_stats();
  TRY_ASSIGN(const MonitorReply reply, r.machine->call(std::move(request), {}, deadline_after(options_.agent_deadline)));
  const auto& said = reply.response.stats().frozen_overlays();
  const std::set<std::string> used(said.begin(), said.end());
  TRY_ASSIGN(std::vector<std::string> chain, registry_->chain(r.info.id));
  if (chain.empty()) return fail(ErrorKind::kNotFound, "it has no overlays any more");
  chain.pop_back();  // the writable one
  const size_t before = chain.size();
  std::erase_if(chain, [&](const std::string& o) { return !used.count(o); });
  if (chain.size() != before) {
    TRY(registry_->set_frozen(r.info.id, chain));
    context_->overlays_changed();
  }
  return chain;
}

}  // namespace ramet::host
