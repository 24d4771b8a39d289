// host/snapshots.h - the snapshots of this host: content in the store of images, and what is known of each beside it.
//
//   store()  frozen machine ─► chunks, manifests, record: all of one instant, there as a whole or not at all
//   load()   record ─► memory filled into sealed files, state, disk: an image that a zygote can map
//   remove() not offered any more; it stays as long as a row stands on it, then sweep() takes it away
//
// The machine that a template is after its boot is one of them too, but nobody's: what other snapshots stand on, and what the
// template starts from when it is wanted again. It is kept as long as the template is there unchanged and was used within
// HostOptions::keep_booted.
//
// A snapshot stands on nothing but the store: what it was made from may go. Not here: freezing (frozen_machine.h), starting
// (zygotes.h), whose memory or disk stands on which (registry.h). Thread: any; a lock of its own, not held over content.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "commit/snapshot_record.h"
#include "host/context.h"
#include "host/frozen_machine.h"
#include "host/memory_filler.h"
#include "host/snapshot_details.h"
#include "host/template_boot.h"
#include "host/zygotes.h"

namespace ramet::host {

class Snapshots {
 public:
  Snapshots(const Context& context, const Zygotes& zygotes) : context_(context), zygotes_(zygotes) {}

  // Errors: kInvalid, kExists.
  Status check_new_name(const std::string& name);
  // As long as one of it lives, sweep() leaves the snapshot alone, whatever the rows say.
  using Hold = std::shared_ptr<const std::string>;
  Hold hold(const std::string& id);

  struct Stored {
    SnapshotResult result;
    Hold hold;
  };
  // Durable when it returns. `details`: all but the id.   Errors: kExists (name), kUnsupported (its disk is no image),
  // kCorrupt, kNoSpace, kIo, kUnavailable (the frozen machine was killed); nothing of it is there then.
  Result<Stored> store(const FrozenMachine& machine, SnapshotDetails details);

  // Those of users, newest first.   Errors: kIo.
  Result<std::vector<SnapshotInfo>> list();
  // By id or by name, of users or what a sandbox is paused in.   Errors: kNotFound, kCorrupt, kIo.
  Result<SnapshotDetails> find(const std::string& id_or_name);
  // What fills memory of it for a machine of an earlier daemon, whose process that is; null: nothing is missing.
  // Errors: kNotFound (the snapshot, or its files), kCorrupt, kIo.
  Result<std::shared_ptr<MemoryFiller>> fill_on(const std::string& id, pid_t of);
  // What machines wait for first when they start from it, where that is not known yet.
  void note_working_set(const std::string& id, const std::vector<uint32_t>& chunks);
  // Errors: kNotFound, kConflict (a sandbox is paused in it), kIo.
  Status remove(const std::string& id_or_name);
  // Errors: kNotFound, kInvalid (name), kExists.
  Result<SnapshotInfo> update(const std::string& id_or_name, const SnapshotPatch& patch);

  // Errors: kNotFound, kCorrupt, kNoMemory, kUnavailable, kIo.
  Result<MachineImage> load(const std::string& id);
  // Takes away what is over and nothing stands on. Slow.
  void sweep();

  // ---- machines of templates: after their boot, and saved ones (template_machines.cc) ----
  // That of a booted variant, by the name of its memory. Cheap if it is there already. Slow; ends early after stop().
  // Errors: kNotFound (the template is not at hand any more), kUnavailable (stop), and those of store().
  Status store_captured(const std::string& base_memory);
  // One that fits this template, size and processor.   Errors: kNotFound, and those of load().
  Result<MachineImage> load_captured(const Template& source, uint32_t vcpus, uint64_t memory_mib);
  // The machine of snapshot `from` once more, as that of a template. Held, it waits for the template that names it.
  // Errors: kNotFound, kUnsupported (it has no memory), kNoSpace, kIo.
  Result<Hold> copy_for_template(const std::string& from, const std::string& id, const std::string& name,
                                 const std::string& template_digest);
  // Whether it is one of these, and no snapshot of anybody.
  bool is_of_template(const std::string& id);
  // Storing of captured machines ends soon; for the end of the host.
  void stop() { stopping_ = true; }

 private:
  struct Entry {
    commit::SnapshotRecord record;
    SnapshotDetails details;
  };
  Result<Entry> read(const std::string& id);
  Result<std::vector<SnapshotDetails>> all();
  Result<commit::SnapshotRecord> fill(const FrozenMachine& machine, const SnapshotDetails& details, chunk::Batch& batch,
                                      SnapshotResult& done);
  Result<image::ManifestRoot> disk_with(const OpenImage& base, std::vector<image::OverlayFiles> overlays, chunk::Batch& batch,
                                        uint64_t* changed_chunks);
  // What the memory of a machine was at first; none: that is not known any more.
  Result<std::optional<image::Manifest>> base_memory(const std::string& id);
  // Takes the record away, unless somebody holds it.
  void forget(const std::string& id);
  // Of those that are captured: one for each template as it is now, size and processor, if it was used lately.
  std::set<std::string> saved_to_keep(const std::vector<SnapshotDetails>& there);
  std::set<std::string> captured_to_keep(const std::vector<SnapshotDetails>& there);
  void note_use(SnapshotDetails& details);
  Status write_details(const SnapshotDetails& details);
  Result<std::shared_ptr<MemoryFiller>> start_filler(const Entry& entry, image::Manifest& memory, const image::ZeroMap& zeros,
                                                     MemoryFilePair files, Hold held);

  const Context& context_;
  const Zygotes& zygotes_;
  std::atomic<bool> stopping_{false};
  std::mutex storing_captured_;  // one at a time; before mutex_
  std::mutex taking_over_;
  std::map<std::pair<std::string, ino_t>, std::weak_ptr<MemoryFiller>> taken_over_;  // guarded by taking_over_; by even file
  std::mutex mutex_;  // a name is checked and given, details are read and replaced, together
  struct Held {
    std::mutex mutex;
    std::multiset<std::string> ids;  // guarded by mutex
  };
  const std::shared_ptr<Held> held_ = std::make_shared<Held>();  // holds may outlive us
};

}  // namespace ramet::host
