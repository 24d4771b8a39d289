// host/template_runtime.h - for every (template, vCPUs, memory) in use: its image and its zygote.
//
//             acquire                    zygote up
//   cold ───────────────► booting ────────────────────► ready ──┐ zygote died: started anew from the image,
//     ▲                      │                            │ ▲   │ or, adopted from an earlier daemon and without image,
//     │   next acquire       ▼ any step failed            │ └───┘ booted again, at the next acquire
//     └────────────────── failed (reason kept) ◄──────────┘
//     retire (template removed or replaced) ends image and zygote; sandboxes made from it live on
//
// One boot at a time per variant: concurrent creates wait for it and share its outcome.
// Owner: HostImpl. Thread: any; acquire() blocks for the time of a boot.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "host/context.h"
#include "host/template_boot.h"

namespace ramet::host {

class TemplateRuntime {
 public:
  explicit TemplateRuntime(const Context& context) : context_(context) {}

  struct Zygote {
    std::shared_ptr<Machine> machine;
    Template source;
    uint32_t vcpus = 0;
    uint64_t memory_mib = 0;
    double boot_ms = 0;  // spent here waiting for a boot
  };
  // Errors: kNotFound, kInvalid (size), and those of boot_template().
  Result<Zygote> acquire(const std::string& name, std::optional<uint32_t> vcpus, std::optional<uint64_t> memory_mib);
  // The zygote refused or broke: ends it; the next acquire makes another.
  void discard(const std::string& machine_id);
  // A zygote that an earlier daemon left running.
  void adopt(const Template& source, const MachineRow& row, std::shared_ptr<Machine> machine);
  // Every variant of that name goes.
  void retire(const std::string& name);
  // True when it was one of ours.
  bool on_machine_end(const std::string& machine_id);

  struct State {
    std::string status = "cold";  // cold, booting, ready, failed
    std::string reason;
  };
  State state(const std::string& name) const;
  uint64_t image_bytes() const;

 private:
  using Key = std::tuple<std::string, uint32_t, uint64_t>;
  struct Variant {
    std::string status = "cold";
    Error error{ErrorKind::kInternal, ""};
    std::string digest;
    uint64_t attempt = 0;  // counts finished boots
    std::optional<MachineImage> image;
    std::shared_ptr<Machine> zygote;
    bool retired = false;
  };
  // Requires: status is "booting" by this caller; the lock is not held.
  Result<std::shared_ptr<Machine>> bring_up(Variant& variant, const Template& source, uint32_t vcpus, uint64_t memory_mib);
  void drop(std::shared_ptr<Variant> variant);

  const Context& context_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::shared_ptr<Variant>> variants_;  // guarded by mutex_; shared with callers that wait for its boot
};

}  // namespace ramet::host
