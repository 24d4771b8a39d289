// The machines that templates are after their boot: into the store, once for each boot and in nobody's way, and out of it when
// a template is wanted that is not at hand. A template, its size and its processor are all that such a machine depends on.
#include <unistd.h>

#include <cerrno>
#include <tuple>

#include "base/file.h"
#include "base/log.h"
#include "commit/memory_commit.h"
#include "commit/memory_files.h"
#include "commit/stored_bytes.h"
#include "host/snapshots.h"

namespace ramet::host {
namespace {

// A capture leaves holes where memory was zero, and nowhere else.
Result<image::ZeroMap> zero_map_of_files(int even, int odd, uint64_t ram_bytes) {
  image::ZeroMap zeros(ram_bytes);
  for (uint64_t block = 0; block < zeros.blocks(); block++) {
    const uint64_t at = block * image::kRamBlockBytes;
    const int file = at / image::segment_bytes(ram_bytes) % 2 == 0 ? even : odd;
    const off_t data = ::lseek(file, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno != ENXIO) return fail_errno("look for the data of a captured memory");
    zeros.set_zero(block, data < 0 || static_cast<uint64_t>(data) >= at + image::kRamBlockBytes);
  }
  return zeros;
}

// A memory that cannot be read any more when nobody waits for it.
class UntilStopped final : public commit::MemoryView {
 public:
  UntilStopped(const commit::MemoryView& memory, const std::atomic<bool>& stopping) : memory_(memory), stopping_(stopping) {}
  uint64_t size_bytes() const override { return memory_.size_bytes(); }
  Status visit_own(const Visit& visit) const override { return memory_.visit_own(visit); }
  Status read(uint64_t offset, std::span<std::byte> out) const override {
    if (stopping_) return fail(ErrorKind::kUnavailable, "the daemon ends");
    return memory_.read(offset, out);
  }

 private:
  const commit::MemoryView& memory_;
  const std::atomic<bool>& stopping_;
};

SnapshotDetails captured_now(const MachineRow& row) {
  SnapshotDetails d = details_of(row.info, row.template_digest);
  d.captured = true;
  d.info.cpu_model = cpu_model_here();
  return d;
}

// What of it decides whether it fits.
auto fit(const SnapshotDetails& d) {
  return std::tie(d.info.template_name, d.template_digest, d.info.vcpus, d.info.memory_mib, d.info.cpu_model);
}

int64_t in_ns(Milliseconds d) { return std::chrono::duration_cast<Nanoseconds>(d).count(); }

}  // namespace

Status Snapshots::store_captured(const std::string& id) {
  const std::lock_guard one_at_a_time(storing_captured_);
  if (read(id)) return {};  // another was quicker
  TRY_ASSIGN(const Zygotes::Captured captured, zygotes_.captured(id));
  ImageStore& images = context_.images.store();
  chunk::Batch batch = images.chunks().begin();
  commit::SnapshotRecord record;
  {
    std::vector<std::string> chain;
    if (!captured.overlay.empty()) chain.push_back(captured.overlay);
    TRY_ASSIGN(std::vector<image::OverlayFiles> overlays, open_frozen_overlays(context_, chain));
    TRY_ASSIGN(record.disk, disk_with(*captured.disk, std::move(overlays), batch, nullptr));
  }
  const uint64_t ram_bytes = captured.row.info.memory_mib << 20;
  TRY_ASSIGN(const image::ZeroMap zeros, zero_map_of_files(captured.memory_even.get(), captured.memory_odd.get(), ram_bytes));
  const commit::MemoryFiles memory(zeros, captured.memory_even.get(), captured.memory_odd.get());
  TRY_ASSIGN(image::Manifest manifest, image::Manifest::empty(image::ImageKind::kMemory, ram_bytes / image::kBlockBytes));
  TRY(commit::commit_memory(UntilStopped(memory, stopping_), manifest, images.chunks(), batch));
  TRY_ASSIGN(const uint64_t state_bytes, file_size(captured.vmstate.get()));
  std::vector<std::byte> state(state_bytes);
  TRY(pread_exact(captured.vmstate.get(), state, 0));
  TRY_ASSIGN(image::ManifestRoot vmstate, commit::put_bytes(batch, state));
  record.machine = {manifest.root(), std::move(vmstate), state_bytes};
  TRY(batch.commit());
  SnapshotDetails details = captured_now(captured.row);
  details.info.expires_at_ns = wall_ns() + in_ns(context_.options.keep_booted);
  record.details = encode_details(details);
  TRY(images.snapshots().add(id, batch, record));
  log_info("the machine of template '" + details.info.template_name + "' after its boot is stored as " + id);
  return {};
}

Result<MachineImage> Snapshots::load_captured(const Template& source, uint32_t vcpus, uint64_t memory_mib) {
  const auto none = fail(ErrorKind::kNotFound, "no machine of template '" + source.info.name + "' is stored");
  if (context_.options.keep_booted.count() == 0) return none;
  MachineRow row;
  row.template_digest = source.digest;
  row.info.template_name = source.info.name;
  row.info.vcpus = vcpus;
  row.info.memory_mib = memory_mib;
  const SnapshotDetails wanted = captured_now(row);
  TRY_ASSIGN(const std::vector<SnapshotDetails> there, all());
  const SnapshotDetails* best = nullptr;
  for (const SnapshotDetails& d : there)
    if (d.captured && fit(d) == fit(wanted) && (!best || d.info.created_at_ns > best->info.created_at_ns)) best = &d;
  if (!best) return none;
  const int64_t begin = monotonic_ns();
  TRY_ASSIGN(MachineImage image, load(best->info.id));
  log_info("template '" + source.info.name + "' starts from " + best->info.id + ", read in " +
           std::to_string((monotonic_ns() - begin) / 1'000'000) + " ms");
  return image;
}

Result<Snapshots::Hold> Snapshots::copy_for_template(const std::string& from, const std::string& id, const std::string& name,
                                                     const std::string& template_digest) {
  const Hold source = hold(from), held = hold(id);
  TRY_ASSIGN(Entry entry, read(from));
  if (!entry.record.machine) return fail(ErrorKind::kUnsupported, "snapshot '" + from + "' has no memory to start from");
  SnapshotDetails details = std::move(entry.details);
  details.deleted = false;
  details.saved_as = details.info.template_name = name;
  details.template_digest = template_digest;
  details.info.name.clear();
  details.info.expires_at_ns.reset();
  details.info.created_at_ns = wall_ns();
  entry.record.details = encode_details(details);
  ImageStore& images = context_.images.store();
  const chunk::Batch nothing_new = images.chunks().begin();  // its chunks are those of the source, which is held
  TRY(images.snapshots().add(id, nothing_new, entry.record));
  return held;
}

bool Snapshots::is_of_template(const std::string& id) {
  const Result<Entry> entry = read(id);
  return entry && (entry->details.captured || !entry->details.saved_as.empty());
}

std::set<std::string> Snapshots::saved_to_keep(const std::vector<SnapshotDetails>& there) {
  std::set<std::string> out;
  for (const SnapshotDetails& d : there) {
    if (d.saved_as.empty()) continue;
    const Result<Template> owner = context_.templates.get(d.saved_as);
    // One that cannot be read may name it.
    const bool unknown = !owner && owner.error().kind() != ErrorKind::kNotFound;
    if (unknown || (owner && owner->info.saved == d.info.id)) out.insert(d.info.id);
  }
  return out;
}

void Snapshots::note_use(SnapshotDetails& d) {
  const std::optional<Deadline> asked_at = zygotes_.asked_at(d.info.id);
  if (!asked_at) return;
  const Milliseconds keep = context_.options.keep_booted;
  const int64_t ago = std::chrono::duration_cast<Nanoseconds>(MonotonicClock::now() - *asked_at).count();
  const int64_t until = wall_ns() - ago + in_ns(keep);
  if (until - d.info.expires_at_ns.value_or(0) < in_ns(keep) / 16) return;  // not a file for each create
  d.info.expires_at_ns = until;
  if (const Status noted = write_details(d); !noted) log_warn(noted.error().to_string());
}

std::set<std::string> Snapshots::captured_to_keep(const std::vector<SnapshotDetails>& there) {
  std::set<std::pair<std::string, std::string>> templates;
  for (const Template& t : context_.templates.list()) templates.emplace(t.info.name, t.digest);
  std::map<decltype(fit(there[0])), const SnapshotDetails*> newest;
  for (const SnapshotDetails& d : there) {
    if (!d.captured || !templates.contains({d.info.template_name, d.template_digest})) continue;
    const SnapshotDetails*& best = newest[fit(d)];
    if (!best || d.info.created_at_ns > best->info.created_at_ns) best = &d;
  }
  std::set<std::string> out;
  for (const auto& [what, newest_one] : newest) {
    SnapshotDetails d = *newest_one;
    note_use(d);
    if (d.info.expires_at_ns.value_or(0) > wall_ns()) out.insert(d.info.id);
  }
  return out;
}

}  // namespace ramet::host
