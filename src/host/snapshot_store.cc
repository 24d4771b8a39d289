// Snapshots on their way into the store: what a frozen machine changed of what it stands on.
#include "base/file.h"
#include "commit/disk_commit.h"
#include "commit/memory_commit.h"
#include "commit/stored_bytes.h"
#include "commit/stored_source.h"
#include "host/crash_point.h"
#include "host/ids.h"
#include "host/snapshots.h"

namespace ramet::host {
namespace {

// All of a memory, where it is not known what it stood on.
class WholeMemory final : public commit::MemoryView {
 public:
  explicit WholeMemory(const commit::ProcessMemory& memory) : memory_(memory) {}
  uint64_t size_bytes() const override { return memory_.size_bytes(); }
  Status visit_own(const Visit& visit) const override { return visit(0, memory_.size_bytes()); }
  Status read(uint64_t offset, std::span<std::byte> out) const override { return memory_.read(offset, out); }

 private:
  const commit::ProcessMemory& memory_;
};

}  // namespace

Result<Snapshots::Stored> Snapshots::store(const FrozenMachine& machine, SnapshotDetails details) {
  const int64_t begin = monotonic_ns();
  SnapshotResult done;
  details.info.id = new_id("sn");
  details.info.cpu_model = cpu_model_here();
  const Hold held = hold(details.info.id);
  chunk::Batch batch = context_.images.store().chunks().begin();
  TRY_ASSIGN(commit::SnapshotRecord record, fill(machine, details, batch, done));
  TRY(batch.commit());
  crash_point("snapshot.stored");
  {
    const std::lock_guard lock(mutex_);
    TRY(check_new_name(details.info.name));
    record.details = encode_details(details);
    TRY(context_.images.store().snapshots().add(details.info.id, batch, record));
  }
  crash_point("snapshot.named");
  done.info = details.info;
  done.timing = machine.timing();
  done.timing.store_ms = static_cast<double>(monotonic_ns() - begin) / 1e6;
  return Stored{std::move(done), held};
}

Result<image::ManifestRoot> Snapshots::disk_with(const OpenImage& base, std::vector<image::OverlayFiles> overlays,
                                                 chunk::Batch& batch, uint64_t* changed_chunks) {
  const chunk::Store& store = context_.images.store().chunks();
  TRY_ASSIGN(const std::unique_ptr<image::OverlayStack> disk,
             image::OverlayStack::open(std::make_unique<commit::StoredSource>(store, base.root()), base.blocks(),
                                       std::move(overlays), std::nullopt, image::HostHistory::kSameBoot));
  image::Manifest manifest = commit::manifest_in(store, base.root());
  TRY_ASSIGN(const commit::DiskCommit committed, commit::commit_disk(*disk, manifest, batch));
  if (changed_chunks) *changed_chunks = committed.changed_chunks;
  return manifest.root();
}

Result<commit::SnapshotRecord> Snapshots::fill(const FrozenMachine& machine, const SnapshotDetails& details,
                                               chunk::Batch& batch, SnapshotResult& done) {
  ImageStore& images = context_.images.store();
  const MachineBases& bases = machine.bases();
  if (bases.image.empty())
    return fail(ErrorKind::kUnsupported,
                "the disk of sandbox '" + details.info.sandbox_id + "' stands on a raw file, not on an image");
  commit::SnapshotRecord record;
  {
    TRY_ASSIGN(const std::shared_ptr<OpenImage> base, images.use(base_image_id(bases.image)));
    TRY_ASSIGN(std::vector<image::OverlayFiles> overlays, machine.overlays());
    TRY_ASSIGN(record.disk, disk_with(*base, std::move(overlays), batch, &done.disk_chunks));
  }
  TRY_ASSIGN(const commit::ProcessMemory memory, machine.memory());
  if (memory.size_bytes() != details.info.memory_mib << 20)
    return fail(ErrorKind::kCorrupt, "the monitor shows " + std::to_string(memory.size_bytes()) +
                                         " bytes of memory, the sandbox has " + std::to_string(details.info.memory_mib) +
                                         " MiB");
  TRY_ASSIGN(std::optional<image::Manifest> manifest, base_memory(bases.memory));
  const WholeMemory whole(memory);
  const commit::MemoryView& view = manifest ? static_cast<const commit::MemoryView&>(memory) : whole;
  if (!manifest) {
    TRY_ASSIGN(manifest, image::Manifest::empty(image::ImageKind::kMemory, memory.size_bytes() / image::kBlockBytes));
  }
  TRY_ASSIGN(const commit::MemoryCommit committed, commit::commit_memory(view, *manifest, images.chunks(), batch));
  done.memory_chunks = committed.changed_chunks;
  done.changed_pages = committed.changed_pages;
  TRY_ASSIGN(const std::string state, machine.vmstate());
  TRY_ASSIGN(image::ManifestRoot vmstate, commit::put_bytes(batch, as_bytes(state)));
  record.machine = {manifest->root(), std::move(vmstate), state.size()};
  return record;
}

Result<std::optional<image::Manifest>> Snapshots::base_memory(const std::string& id) {
  if (id.empty()) return std::optional<image::Manifest>();
  Result<Entry> base = read(id);
  if (!base && base.error().kind() == ErrorKind::kNotFound) {
    const Status stored = store_captured(id);
    if (!stored && stored.error().kind() == ErrorKind::kNotFound) return std::optional<image::Manifest>();
    TRY(stored);
    base = read(id);
  }
  if (!base) return tl::unexpected<Error>(base.error());
  if (!base->record.machine) return std::optional<image::Manifest>();
  return std::optional(commit::manifest_in(context_.images.store().chunks(), base->record.machine->memory));
}

}  // namespace ramet::host
