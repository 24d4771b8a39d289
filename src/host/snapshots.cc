#include "host/snapshots.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "base/log.h"
#include "base/userfault.h"
#include "commit/memory_fill.h"
#include "commit/stored_bytes.h"
#include "host/ids.h"

namespace ramet::host {
namespace {

bool is_over(const SnapshotDetails& d, int64_t now_ns) {
  return d.deleted || (d.info.expires_at_ns && *d.info.expires_at_ns <= now_ns);
}

bool is_templates(const SnapshotDetails& d) { return d.captured || !d.saved_as.empty(); }

bool fills_on_demand(const HostOptions& options) {
  if (options.memory_fill == MemoryFill::kWhole) return false;
  const Result<UniqueFd> device = open_userfault_device();
  if (!device) log_warn("snapshots start slowly, with all of their memory at once: " + device.error().to_string());
  return device.has_value();
}

tl::unexpected<Error> no_snapshot(const std::string& name) {
  return fail(ErrorKind::kNotFound, "there is no snapshot '" + name.substr(0, 64) + "'");
}

}  // namespace

// ---- names ----

Status Snapshots::check_new_name(const std::string& name) {
  if (name.empty()) return {};
  TRY(commit::check_image_name(name));
  if (is_id(name)) return fail(ErrorKind::kInvalid, "snapshot name '" + name + "' looks like an id");
  TRY_ASSIGN(const std::vector<SnapshotInfo> there, list());
  if (std::ranges::none_of(there, [&](const SnapshotInfo& s) { return s.name == name; })) return {};
  return fail(ErrorKind::kExists, "there is a snapshot '" + name + "' already");
}

Snapshots::Hold Snapshots::hold(const std::string& id) {
  const std::lock_guard lock(held_->mutex);
  held_->ids.insert(id);
  return {new std::string(id), [held = held_](const std::string* mine) {
            {
              const std::lock_guard release(held->mutex);
              held->ids.erase(held->ids.find(*mine));
            }
            delete mine;
          }};
}

Result<Snapshots::Entry> Snapshots::read(const std::string& id) {
  if (!is_id(id)) return no_snapshot(id);
  Result<commit::SnapshotRecord> record = context_.images.store().snapshots().get(id);
  if (!record && record.error().kind() == ErrorKind::kNotFound) return no_snapshot(id);
  if (!record) return tl::unexpected<Error>(record.error());
  TRY_ASSIGN(SnapshotDetails details, decode_details(record->details));
  details.info.id = id;
  return Entry{*std::move(record), std::move(details)};
}

Result<std::vector<SnapshotDetails>> Snapshots::all() {
  TRY_ASSIGN(const std::vector<std::string> ids, context_.images.store().snapshots().ids());
  std::vector<SnapshotDetails> out;
  for (const std::string& id : ids) {
    Result<Entry> entry = read(id);
    if (entry)
      out.push_back(std::move(entry->details));
    else if (entry.error().kind() != ErrorKind::kNotFound)
      log_warn("snapshot " + id + ": " + entry.error().to_string());
  }
  return out;
}

Result<std::vector<SnapshotInfo>> Snapshots::list() {
  TRY_ASSIGN(std::vector<SnapshotDetails> there, all());
  std::vector<SnapshotInfo> out;
  for (SnapshotDetails& d : there)
    if (d.paused.empty() && !is_templates(d) && !is_over(d, wall_ns())) out.push_back(std::move(d.info));
  std::ranges::sort(out, [](const SnapshotInfo& a, const SnapshotInfo& b) {
    return std::tie(b.created_at_ns, b.id) < std::tie(a.created_at_ns, a.id);
  });
  return out;
}

Result<SnapshotDetails> Snapshots::find(const std::string& id_or_name) {
  if (is_id(id_or_name)) {
    TRY_ASSIGN(Entry entry, read(id_or_name));
    if (!is_templates(entry.details) && !is_over(entry.details, wall_ns())) return std::move(entry.details);
    return no_snapshot(id_or_name);
  }
  TRY_ASSIGN(const std::vector<SnapshotInfo> there, list());
  for (const SnapshotInfo& s : there)
    if (s.name == id_or_name) {
      TRY_ASSIGN(Entry entry, read(s.id));
      return std::move(entry.details);
    }
  return no_snapshot(id_or_name);
}

Status Snapshots::write_details(const SnapshotDetails& details) {
  return context_.images.store().snapshots().replace_details(details.info.id, encode_details(details));
}

Status Snapshots::remove(const std::string& id_or_name) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SnapshotDetails details, find(id_or_name));
  if (!details.paused.empty())
    return fail(ErrorKind::kConflict, "sandbox '" + details.paused + "' is paused in snapshot '" + details.info.id + "'");
  details.deleted = true;
  return write_details(details);
}

Result<SnapshotInfo> Snapshots::update(const std::string& id_or_name, const SnapshotPatch& patch) {
  const std::lock_guard lock(mutex_);
  TRY_ASSIGN(SnapshotDetails details, find(id_or_name));
  if (!details.paused.empty())
    return fail(ErrorKind::kConflict, "sandbox '" + details.paused + "' is paused in snapshot '" + details.info.id + "'");
  if (patch.name && *patch.name != details.info.name) TRY(check_new_name(*patch.name));
  if (patch.name) details.info.name = *patch.name;
  if (patch.labels) details.info.labels = *patch.labels;
  if (patch.keep_seconds) details.info.expires_at_ns = kept_until(*patch.keep_seconds);
  TRY(write_details(details));
  return details.info;
}

void Snapshots::sweep() {
  // In this order: what is there now and is needed later has been held, or had its row, all the time.
  const Result<std::vector<SnapshotDetails>> there = all();
  std::set<std::string> needed;
  {
    const std::lock_guard lock(held_->mutex);
    needed.insert(held_->ids.begin(), held_->ids.end());
  }
  const Result<std::vector<MachineRow>> rows = context_.registry.machines();
  if (!rows || !there) return;  // without both lists anything would look unneeded
  for (const MachineRow& r : *rows) {
    if (r.info.state == SandboxState::kGone || r.info.state == SandboxState::kFailed) continue;
    for (const std::string& id : {r.base_image, r.base_memory, r.saved}) needed.insert(id);
  }
  needed.merge(captured_to_keep(*there));
  needed.merge(saved_to_keep(*there));
  for (const SnapshotDetails& d : *there) {
    // A saved state, or a template's image, that no row names has served.
    const bool served = !d.paused.empty() || is_templates(d);
    if (!needed.contains(d.info.id) && (served || is_over(d, wall_ns()))) forget(d.info.id);
  }
}

void Snapshots::forget(const std::string& id) {
  // Whoever holds it from now on does not find it; who did before finds it whole. So the lock is kept over a small file's end.
  const std::lock_guard lock(held_->mutex);
  if (held_->ids.contains(id)) return;
  if (const Status gone = context_.images.store().snapshots().remove(id); !gone) log_warn(gone.error().to_string());
}

// ---- starting ----

Result<MachineImage> Snapshots::load(const std::string& id) {
  const Hold held = hold(id);
  TRY_ASSIGN(const Entry entry, read(id));
  const commit::SnapshotRecord& record = entry.record;
  const SnapshotInfo& info = entry.details.info;
  if (!record.machine) return fail(ErrorKind::kUnsupported, "snapshot '" + id + "' has no memory: only its disk can be used");
  ImageStore& images = context_.images.store();
  image::Manifest memory = commit::manifest_in(images.chunks(), record.machine->memory);
  const uint64_t ram_bytes = record.machine->memory.blocks * image::kBlockBytes;
  TRY_ASSIGN(const image::ZeroMap zeros, image::zero_map_of(memory));
  MachineImage out;
  out.hold = held;
  for (const image::RamPiece& piece : zeros.pieces()) out.stored_bytes += piece.anonymous ? 0 : piece.length;
  TRY_ASSIGN(const Admission::Reservation room, context_.admission.reserve(out.stored_bytes, 0));
  TRY_ASSIGN(out.disk, images.use({ImageSpace::kSnapshot, id}));
  TRY_ASSIGN(MemoryFilePair files, make_memory_files(id, ram_bytes));
  TRY_ASSIGN(out.memory_even, reopen(files.even.get(), O_RDONLY));
  TRY_ASSIGN(out.memory_odd, reopen(files.odd.get(), O_RDONLY));
  if (fills_on_demand(context_.options)) {
    TRY_ASSIGN(out.filler, start_filler(entry, memory, zeros, std::move(files), held));
  } else {
    TRY(commit::fill_memory(memory, images.chunks(), zeros, files.even.get(), files.odd.get()));
    TRY(seal_memory_files(files));
  }
  TRY_ASSIGN(const std::vector<std::byte> state,
             commit::get_bytes(images.chunks(), record.machine->vmstate, record.machine->vmstate_bytes));
  TRY_ASSIGN(out.vmstate, make_memfd("ramet-vmstate", 0));
  TRY(pwrite_all(out.vmstate.get(), state, 0));
  TRY(seal_image_file(out.vmstate));
  out.zero_map = zeros.encode();
  MachineRow& row = out.row;
  row.template_digest = entry.details.template_digest;
  row.info.template_name = info.template_name;
  row.info.vcpus = info.vcpus;
  row.info.memory_mib = info.memory_mib;
  row.info.disk_bytes = record.disk.blocks * image::kBlockBytes;
  row.base_image = row.base_memory = id;
  return out;
}

// Errors: kNotFound (what is wanted first is not in the store), kCorrupt, kIo.
Result<std::shared_ptr<MemoryFiller>> Snapshots::start_filler(const Entry& entry, image::Manifest& memory,
                                                              const image::ZeroMap& zeros, MemoryFilePair files, Hold held) {
  constexpr size_t kChecked = 64;
  const std::string& id = entry.details.info.id;
  const chunk::Store& store = context_.images.store().chunks();
  TRY_ASSIGN(std::unique_ptr<commit::DemandFill> fill,
             commit::DemandFill::make(memory, store, zeros, files.even.get(), files.odd.get(), entry.details.working_set));
  TRY(fill->check_present(kChecked));
  return MemoryFiller::start({id, std::move(files), std::move(fill), std::move(held)}, context_.options.memory_fill);
}

Result<std::shared_ptr<MemoryFiller>> Snapshots::fill_on(const std::string& id, pid_t of) {
  TRY_ASSIGN(MemoryFilePair files, open_memory_files(of, id));
  if (is_complete(files)) return std::shared_ptr<MemoryFiller>();
  struct stat even;
  if (::fstat(files.even.get(), &even) < 0) return fail_errno("look at a memory file");
  const std::lock_guard lock(taking_over_);
  std::weak_ptr<MemoryFiller>& known = taken_over_[{id, even.st_ino}];
  if (std::shared_ptr<MemoryFiller> there = known.lock()) return there;
  const Hold held = hold(id);
  TRY_ASSIGN(const Entry entry, read(id));
  if (!entry.record.machine) return fail(ErrorKind::kCorrupt, "snapshot '" + id + "' has no memory");
  image::Manifest memory = commit::manifest_in(context_.images.store().chunks(), entry.record.machine->memory);
  TRY_ASSIGN(const image::ZeroMap zeros, image::zero_map_of(memory));
  TRY_ASSIGN(std::shared_ptr<MemoryFiller> filler, start_filler(entry, memory, zeros, std::move(files), held));
  known = filler;
  return filler;
}

void Snapshots::note_working_set(const std::string& id, const std::vector<uint32_t>& chunks) {
  if (chunks.empty()) return;
  const std::lock_guard lock(mutex_);
  Result<Entry> entry = read(id);
  if (!entry || entry->details.deleted || !entry->details.working_set.empty()) return;
  entry->details.working_set = chunks;
  if (const Status noted = write_details(entry->details); !noted) log_warn("snapshot " + id + ": " + noted.error().to_string());
}

}  // namespace ramet::host
