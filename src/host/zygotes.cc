#include "host/zygotes.h"

#include <fcntl.h>

#include "base/file.h"
#include "base/log.h"
#include "host/agent_client.h"

namespace ramet::host {

namespace {
constexpr const char* kBoot = "boot";
constexpr const char* kStore = "store";
}  // namespace

Result<std::shared_ptr<Machine>> Zygotes::start_from_image(Variant& v) {
  v.row = v.image->row;
  Result<std::shared_ptr<Machine>> zygote = start_zygote(context_, *v.image);
  // The image's overlay is held by the new zygote's row now, or by nobody.
  if (!v.image->builder.empty()) dismantle(context_, v.image->builder, v.image->builder, nullptr);
  v.image->builder.clear();
  if (!zygote) v.image.reset();
  return zygote;
}

Result<std::shared_ptr<Machine>> Zygotes::start_from(const Key& key, Variant& v, std::span<const Source> sources) {
  const auto start = [&](const Source& source) -> Result<std::shared_ptr<Machine>> {
    TRY_ASSIGN(v.image, source.make());
    v.origin = source.origin;
    return start_from_image(v);
  };
  for (const Source& source : sources.first(sources.size() - 1)) {
    Result<std::shared_ptr<Machine>> zygote = start(source);
    if (zygote) return zygote;
    if (zygote.error().kind() != ErrorKind::kNotFound)
      log_warn(key.text() + " does not start from the " + source.origin + ": " + zygote.error().message());
  }
  return start(sources.back());
}

Result<std::shared_ptr<Machine>> Zygotes::bring_up(const Key& key, Variant& v, std::span<const Source> sources) {
  const std::shared_ptr<Machine> old = v.zygote;  // its row holds the overlay of the image until another's does
  Result<std::shared_ptr<Machine>> zygote = v.image ? start_from_image(v) : start_from(key, v, sources);
  if (old) dismantle(context_, old->facts().id, old->facts().id, old);
  return zygote;
}

Result<Zygotes::Zygote> Zygotes::acquire(const std::string& name, std::optional<uint32_t> vcpus,
                                         std::optional<uint64_t> memory_mib) {
  TRY_ASSIGN(const Template source, context_.templates.get(name));
  const uint32_t cpus = vcpus.value_or(source.info.vcpus);
  const uint64_t memory = memory_mib.value_or(source.info.memory_mib);
  if (cpus < 1 || cpus > 16) return fail(ErrorKind::kInvalid, std::to_string(cpus) + " vCPUs, a sandbox has 1 to 16");
  if (memory < 64 || memory > (1u << 20) || memory % 2 != 0)
    return fail(ErrorKind::kInvalid,
                std::to_string(memory) + " MiB of memory, a sandbox has an even number between 64 and 1048576");
  const Source sources[] = {{kStore, [&] { return store_.load(source, cpus, memory); }},
                            {kBoot, [&] { return boot_template(context_, source, cpus, memory); }}};
  const bool saved = !source.info.saved.empty();
  if (saved && (cpus != source.info.vcpus || memory != source.info.memory_mib))
    return fail(ErrorKind::kInvalid, "template '" + name + "' is a saved machine of " + std::to_string(source.info.vcpus) +
                                         " vCPUs and " + std::to_string(source.info.memory_mib) +
                                         " MiB, and its sandboxes are as large as that");
  return acquire_variant({.template_name = name, .snapshot_id = {}, .vcpus = cpus, .memory_mib = memory}, source.digest,
                         saved ? std::span(sources).first(1) : std::span(sources));
}

Result<Zygotes::Zygote> Zygotes::acquire_snapshot(const std::string& id, Make load) {
  const Source source{kStore, std::move(load)};
  return acquire_variant({.template_name = {}, .snapshot_id = id}, {}, std::span(&source, 1));
}

Result<Zygotes::Zygote> Zygotes::acquire_variant(const Key& key, const std::string& digest, std::span<const Source> sources) {
  const int64_t begin = monotonic_ns();
  std::unique_lock lock(mutex_);
  VariantPtr v = variants_[key];
  if (v && !v->digest.empty() && v->digest != digest && v->status != "booting") {  // replaced behind our back
    v->retired = true;
    variants_.erase(key);
    lock.unlock();
    drop(std::move(v));
    lock.lock();
    v = variants_[key];
  }
  if (!v) v = variants_[key] = std::make_shared<Variant>();
  v->asked_at = MonotonicClock::now();
  const auto answer = [&](double boot_ms) {
    const bool incomplete = v->image && v->image->filler && !v->image->filler->complete();
    return Zygote{v->zygote, v->row, incomplete ? v->image->filler : nullptr, boot_ms, v->uses};
  };
  const auto waited_ms = [&] { return static_cast<double>(monotonic_ns() - begin) / 1e6; };
  if (v->status == "ready" && v->zygote && v->zygote->alive()) return answer(0);
  if (v->status == "booting") {
    const uint64_t attempt = v->attempt;
    const Deadline deadline = deadline_after(context_.options.boot_deadline + context_.options.child_deadline);
    if (!changed_.wait_until(lock, deadline, [&] { return v->attempt != attempt; }))
      return fail(ErrorKind::kTimeout, key.text() + " is still being started");
    if (v->status == "ready" && v->zygote) return answer(waited_ms());
    return tl::unexpected<Error>(v->error);
  }
  v->status = "booting";
  v->digest = digest;
  const bool had_image = v->image.has_value();
  lock.unlock();
  Result<std::shared_ptr<Machine>> zygote = bring_up(key, *v, sources);
  lock.lock();
  v->attempt++;
  v->status = zygote ? "ready" : "failed";
  v->zygote = zygote ? *zygote : nullptr;
  if (!zygote) v->error = zygote.error();
  const bool retired = v->retired;
  changed_.notify_all();
  const Zygote done = answer(waited_ms());
  lock.unlock();
  if (!zygote) {
    log_warn(zygote.error().to_string());
    return tl::unexpected<Error>(std::move(zygote).error());
  }
  if (retired) {
    drop(v);
    return fail(ErrorKind::kConflict, key.text() + " was removed or replaced meanwhile");
  }
  if (!had_image && v->origin == kBoot) store_.booted(done.row.base_memory);
  return done;
}

void Zygotes::discard(const std::string& machine_id) {
  std::shared_ptr<Machine> machine;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, v] : variants_)
      if (v && v->zygote && v->zygote->facts().id == machine_id) machine = v->zygote;
  }
  if (machine) machine->kill();  // the variant keeps it until the next acquire, which needs its row's overlay
}

void Zygotes::adopt(const Template& source, const MachineRow& row, std::shared_ptr<Machine> machine) {
  const std::lock_guard lock(mutex_);
  const auto v = std::make_shared<Variant>();
  v->status = "ready";
  v->digest = source.digest;
  v->row = row;
  v->zygote = std::move(machine);
  variants_[{row.info.template_name, {}, row.info.vcpus, row.info.memory_mib}] = v;
}

void Zygotes::drop(VariantPtr v) {
  std::shared_ptr<Machine> zygote;
  {
    const std::lock_guard lock(mutex_);
    zygote = std::move(v->zygote);
    v->image.reset();
    v->status = "cold";
  }
  if (zygote) dismantle(context_, zygote->facts().id, zygote->facts().id, zygote);
}

void Zygotes::retire_if(const std::function<bool(const Key&, const Variant&)>& unwanted) {
  std::vector<VariantPtr> gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = variants_.begin(); it != variants_.end();) {
      if (!it->second || !unwanted(it->first, *it->second)) {
        ++it;
        continue;
      }
      it->second->retired = true;  // one that boots is dropped by its own acquire
      if (it->second->status != "booting") gone.push_back(it->second);
      it = variants_.erase(it);
    }
  }
  for (VariantPtr& v : gone) drop(std::move(v));
}

void Zygotes::retire(const std::string& name) {
  retire_if([&](const Key& key, const Variant&) { return key.snapshot_id.empty() && key.template_name == name; });
}

void Zygotes::retire_snapshot(const std::string& id) {
  retire_if([&](const Key& key, const Variant&) { return key.snapshot_id == id; });
}

void Zygotes::retire_idle_snapshots(Deadline since) {
  retire_if([&](const Key& key, const Variant& v) {
    return !key.snapshot_id.empty() && v.status != "booting" && v.uses.use_count() == 1 && v.asked_at < since;
  });
}

void Zygotes::retire_all() {
  retire_if([](const Key&, const Variant&) { return true; });
}

bool Zygotes::on_machine_end(const std::string& machine_id) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, v] : variants_) {
    if (!v || !v->zygote || v->zygote->facts().id != machine_id) continue;
    if (v->status == "ready") v->status = "cold";
    const std::optional<MachineEnd> end = v->zygote->end();
    log_warn("the zygote of " + key.text() + " ended (" + (end ? end->reason : "unknown") +
             "); the next create starts another");
    return true;
  }
  return false;
}

Zygotes::State Zygotes::state(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  State best;
  for (const auto& [key, v] : variants_) {
    if (!key.snapshot_id.empty() || key.template_name != name || !v) continue;
    if (v->status == "ready") return {"ready", {}, v->origin};
    if (v->status == "booting")
      best = {"booting", {}, {}};
    else if (v->status == "failed" && best.status != "booting")
      best = {"failed", v->error.message(), {}};
  }
  return best;
}

Result<Zygotes::Captured> Zygotes::captured(const std::string& base_memory) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, v] : variants_) {
    if (!v || v->status != "ready" || !v->image || v->row.base_memory != base_memory) continue;
    Captured out{{}, {}, {}, v->image->disk, v->image->overlay, v->row};
    TRY_ASSIGN(out.vmstate, reopen(v->image->vmstate.get(), O_RDONLY));
    TRY_ASSIGN(out.memory_even, reopen(v->image->memory_even.get(), O_RDONLY));
    TRY_ASSIGN(out.memory_odd, reopen(v->image->memory_odd.get(), O_RDONLY));
    return out;
  }
  return fail(ErrorKind::kNotFound, "no captured image is at hand that rows know as '" + base_memory + "'");
}

std::optional<Deadline> Zygotes::asked_at(const std::string& base_memory) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, v] : variants_)
    if (v && v->status == "ready" && key.snapshot_id.empty() && v->row.base_memory == base_memory) return v->asked_at;
  return std::nullopt;
}

uint64_t Zygotes::image_bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [key, v] : variants_)
    if (v && v->status == "ready" && v->image) sum += v->image->stored_bytes;
  return sum;
}

}  // namespace ramet::host
