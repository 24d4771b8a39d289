// Snapshots on their way into the store: what a frozen machine changed, and the image of its template below it.
#include <unistd.h>

#include <cerrno>

#include "base/file.h"
#include "base/log.h"
#include "commit/disk_commit.h"
#include "commit/memory_commit.h"
#include "commit/memory_files.h"
#include "commit/stored_bytes.h"
#include "commit/stored_source.h"
#include "host/crash_point.h"
#include "host/ids.h"
#include "host/snapshots.h"

namespace ramet::host {
namespace {

std::string cpu_model_here() {
  const Result<std::string> text = read_file("/proc/cpuinfo", 1u << 20);
  const size_t at = text ? text->find("model name") : std::string::npos;
  if (at == std::string::npos) return "unknown";
  const size_t begin = text->find(':', at) + 2, end = text->find('\n', at);
  return begin < end ? text->substr(begin, end - begin) : "unknown";
}

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

// Errors: kNotFound (its template is not at hand any more), and those of store().
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
  TRY(commit::commit_memory(memory, manifest, images.chunks(), batch));
  TRY_ASSIGN(const uint64_t state_bytes, file_size(captured.vmstate.get()));
  std::vector<std::byte> state(state_bytes);
  TRY(pread_exact(captured.vmstate.get(), state, 0));
  TRY_ASSIGN(image::ManifestRoot vmstate, commit::put_bytes(batch, state));
  record.machine = {manifest.root(), std::move(vmstate), state_bytes};
  TRY(batch.commit());
  SnapshotDetails details;
  details.captured = true;
  details.template_digest = captured.row.template_digest;
  details.info.template_name = captured.row.info.template_name;
  details.info.created_at_ns = wall_ns();
  details.info.vcpus = captured.row.info.vcpus;
  details.info.memory_mib = captured.row.info.memory_mib;
  details.info.disk_bytes = captured.row.info.disk_bytes;
  details.info.cpu_model = cpu_model_here();
  record.details = encode_details(details);
  TRY(images.snapshots().add(id, batch, record));
  log_info("the machine of template '" + details.info.template_name + "' after its boot is stored as " + id);
  return {};
}

}  // namespace ramet::host
