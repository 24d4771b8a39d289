// host/zygotes.h - for every template (by vCPUs and memory) and every snapshot in use: its image and its zygote.
//
//             acquire                    zygote up
//   cold ───────────────► booting ────────────────────► ready ──┐ zygote died: started anew from the image,
//     ▲                      │                            │ ▲   │ or, adopted from an earlier daemon and without image,
//     │   next acquire       ▼ any step failed            │ └───┘ made again, at the next acquire
//     └────────────────── failed (reason kept) ◄──────────┘
//     retire (template removed or replaced, snapshot not wanted any more) ends image and zygote; sandboxes made from it live on
//
// A template's image is what an earlier boot of the same template left in the store, else it is made by booting it; a
// snapshot's is filled from the store. One boot at a time per variant: concurrent creates wait for it and share its outcome.
// Owner: HostImpl. Thread: any; acquire() blocks for the time of a boot.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/context.h"
#include "host/template_boot.h"

namespace ramet::host {

class Zygotes {
 public:
  // What the store has to do with templates. `load`: the machine of such a variant as it was after an earlier boot; kNotFound:
  // there is none. `booted`: one was booted, which captured() shows under this name of its memory; must not block.
  struct Store {
    std::function<Result<MachineImage>(const Template& source, uint32_t vcpus, uint64_t memory_mib)> load;
    std::function<void(const std::string& base_memory)> booted;
  };
  Zygotes(const Context& context, Store store) : context_(context), store_(std::move(store)) {}

  struct Zygote {
    std::shared_ptr<Machine> machine;
    MachineRow row;                        // what its children's rows say of template, size and bases
    std::shared_ptr<MemoryFiller> filler;  // while its image is not complete
    double boot_ms = 0;                    // spent here waiting for a boot
    std::shared_ptr<const void> use;       // as long as it lives the zygote is not idle
  };
  // Errors: kNotFound, kInvalid (size), and those of boot_template().
  Result<Zygote> acquire(const std::string& name, std::optional<uint32_t> vcpus, std::optional<uint64_t> memory_mib);
  // Errors: those of `load`, and of start_zygote().
  using Make = std::function<Result<MachineImage>()>;
  Result<Zygote> acquire_snapshot(const std::string& id, Make load);
  // The zygote refused or broke: ends it; the next acquire makes another.
  void discard(const std::string& machine_id);
  // A template's zygote that an earlier daemon left running.
  void adopt(const Template& source, const MachineRow& row, std::shared_ptr<Machine> machine);
  // Every variant of that template goes.
  void retire(const std::string& name);
  void retire_snapshot(const std::string& id);
  // Of snapshots, that nobody uses, or has asked for since then.
  void retire_idle_snapshots(Deadline since);
  void retire_all();
  // True when it was one of ours.
  bool on_machine_end(const std::string& machine_id);

  // The image whose memory rows know by this name, while a template's variant has it.
  struct Captured {
    UniqueFd vmstate, memory_even, memory_odd;
    std::shared_ptr<OpenImage> disk;
    std::string overlay;  // what its boot wrote to the disk; empty: nothing
    MachineRow row;
  };
  // Errors: kNotFound, by errno.
  Result<Captured> captured(const std::string& base_memory) const;

  // When a create last asked for the template's variant whose memory rows know by this name; none: there is no such variant.
  std::optional<Deadline> asked_at(const std::string& base_memory) const;

  struct State {
    std::string status = "cold";  // cold, booting, ready, failed
    std::string reason;
    std::string origin;  // of one that is ready: "boot" or "store"; empty: an earlier daemon's
  };
  State state(const std::string& template_name) const;
  uint64_t image_bytes() const;

 private:
  // Templates and snapshots have names of different kinds: the latter are ids.
  struct Key {
    std::string template_name;  // empty: of a snapshot
    std::string snapshot_id;
    uint32_t vcpus = 0;
    uint64_t memory_mib = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
    std::string text() const {
      return snapshot_id.empty() ? "template '" + template_name + "'" : "snapshot '" + snapshot_id + "'";
    }
  };
  // Tried in turn until one gives a zygote; there is one at least.
  struct Source {
    const char* origin;
    Make make;
  };
  struct Variant {
    std::string status = "cold";
    const char* origin = "";
    Error error{ErrorKind::kInternal, ""};
    std::string digest;
    uint64_t attempt = 0;  // counts finished boots
    std::optional<MachineImage> image;
    MachineRow row;
    std::shared_ptr<Machine> zygote;
    bool retired = false;
    Deadline asked_at{};
    std::shared_ptr<const void> uses = std::make_shared<char>();  // one more for each use
  };
  using VariantPtr = std::shared_ptr<Variant>;
  Result<Zygote> acquire_variant(const Key& key, const std::string& digest, std::span<const Source> sources);
  // Requires: status is "booting" by this caller; the lock is not held.
  Result<std::shared_ptr<Machine>> bring_up(const Key& key, Variant& variant, std::span<const Source> sources);
  Result<std::shared_ptr<Machine>> start_from(const Key& key, Variant& variant, std::span<const Source> sources);
  Result<std::shared_ptr<Machine>> start_from_image(Variant& variant);
  void retire_if(const std::function<bool(const Key&, const Variant&)>& unwanted);
  void drop(VariantPtr variant);

  const Context& context_;
  const Store store_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, VariantPtr> variants_;  // guarded by mutex_; shared with callers that wait for its boot
};

}  // namespace ramet::host
