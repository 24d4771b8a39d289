// Templates and the store: machines after their boot, and templates that are saved machines from the beginning.
#include "base/file.h"
#include "base/log.h"
#include "chunk/sha256.h"
#include "host/crash_point.h"
#include "host/host_impl.h"
#include "host/ids.h"

namespace ramet::host {

Zygotes::Store HostImpl::store_of_templates() {
  const auto store = [this](const std::string& base_memory) {
    const Status stored = snapshots_->store_captured(base_memory);
    // Removed or replaced meanwhile, or the daemon ends: another boot stores it.
    const bool nobodys_fault =
        !stored && (stored.error().kind() == ErrorKind::kNotFound || stored.error().kind() == ErrorKind::kUnavailable);
    if (!stored && !nobodys_fault)
      log_warn("a template's machine is not stored and will be booted again: " + stored.error().message());
    snapshots_->sweep();  // one of an earlier boot
  };
  return {[this](const Template& source, uint32_t vcpus, uint64_t memory_mib) {
            return source.info.saved.empty() ? snapshots_->load_captured(source, vcpus, memory_mib)
                                             : snapshots_->load(source.info.saved);
          },
          [this, store](const std::string& base_memory) {
            if (options_.keep_booted.count() == 0) return;
            slow_->post_at(deadline_after(options_.store_booted_after), [store, base_memory] { store(base_memory); });
          }};
}

void HostImpl::forget_machines_of(const std::string& template_name) {
  zygotes_->retire(template_name);
  slow_->post([this] { snapshots_->sweep(); });
}

Result<TemplateInfo> HostImpl::save_template(const std::string& name, const SaveTemplateOptions& options) {
  TRY(check_template_name(name));
  TRY_ASSIGN(const SnapshotDetails from, snapshots_->find(options.snapshot));
  if (!from.paused.empty())
    return fail(ErrorKind::kInvalid, "'" + options.snapshot + "' is what a sandbox is paused in, not a snapshot");
  if (!from.info.strict && options_.agent == AgentUse::kRequired)
    return fail(ErrorKind::kNotQuiescent, "snapshot '" + from.info.id +
                                              "' was taken with strict off: sandboxes of such a template would share random "
                                              "numbers");
  TemplateInfo info;
  info.name = name;
  const Result<Template> below = template_store_->get(from.info.template_name);
  info.kernel_release = below ? below->info.kernel_release : "unknown";
  info.vcpus = from.info.vcpus;
  info.memory_mib = from.info.memory_mib;
  info.disk_bytes = from.info.disk_bytes;
  info.saved = new_id("sn");
  info.env = from.info.env;
  for (const auto& [key, value] : options.env) info.env[key] = value;
  const std::string text = saved_template_json(info);
  // The machine first, then the template that names it: one without the other is swept.
  TRY_ASSIGN(const Snapshots::Hold held,
             snapshots_->copy_for_template(from.info.id, info.saved, name, chunk::sha256(as_bytes(text)).to_hex()));
  crash_point("template.saved");
  TRY_ASSIGN(Template saved, template_store_->commit_saved(name, text));
  forget_machines_of(name);
  saved.info.status = "cold";
  log_info("template '" + name + "' is what snapshot " + from.info.id + " was");
  return std::move(saved.info);
}

}  // namespace ramet::host
