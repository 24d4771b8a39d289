// host/host.h - many microVMs on one machine: the one door the API layer calls.
// What it does: templates, sandboxes, live forks, what runs in them, their tree; survives its own death and theirs.
// Not here: HTTP, JSON, users and keys (api/), the machine itself (vmm/, seen as a process plus vmm/control).
// Thread: every method may be called from any thread at the same time and blocks the caller, never past its deadline; streams
// are pulled (streams.h). Owner: apps/rametd makes one. Destroying it stops its threads and leaves all sandboxes running.
// Errors common to all methods with an id: kNotFound, kConflict (not running), kUnavailable (it ended meanwhile), kTimeout.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "host/streams.h"
#include "host/types.h"

namespace ramet::host {

// kNone is for tests with tiny guests that have no agent: no child is ever confirmed, so never offer it to users.
class Images;  // images/images.h

// The bucket behind the packs of this host (images/remote_tier.h).
struct RemoteOptions {
  std::string endpoint;  // empty: none
  std::string bucket, region = "us-east-1", prefix = "ramet";
  std::string access_key, secret_key, session_token;
  uint64_t local_mib = UINT64_MAX >> 20;  // of packs that stay on this host although they are there
};

enum class AgentUse { kRequired, kNone };

struct HostOptions {
  std::string state_dir;    // database, templates, overlays
  std::string runtime_dir;  // sockets; made 0700
  std::string vmm_program;  // path of ramet-vmm
  std::string version = "0";
  std::string kvm_device = "/dev/kvm";
  std::string cgroup_root = "/sys/fs/cgroup";
  uint32_t max_fork_children = 10;  // up to 100
  uint32_t max_sandboxes = 2000;
  uint32_t max_depth = 1000;
  uint64_t default_ttl_seconds = 0;   // 0: never
  double family_memory_factor = 4.0;  // memory.max of a family = factor x RAM of the template + 256 MiB; 0: no limit
  uint64_t memory_reserve_mib = 256;  // admission never goes below this much MemAvailable
  uint64_t disk_reserve_mib = 256;    // nor below this much free space for the state
  uint64_t console_limit_bytes = 1 << 20;
  Milliseconds boot_deadline{180'000};  // template: process start to agent ready
  Milliseconds agent_deadline{15'000};  // a short operation of the agent
  Milliseconds child_deadline{30'000};  // a new child: start to identity confirmed
  Milliseconds freeze_deadline{500};
  Milliseconds wake_deadline{30'000};  // for what is asked of a paused sandbox
  Milliseconds idle_zygote{60'000};    // a snapshot's, since the last create from it
  // A booted template's machine stays in the store so long after its last use, and is not booted again; 0: it always is.
  Milliseconds keep_booted{std::chrono::hours(14 * 24)};
  Milliseconds store_booted_after{5000};  // not in the way of the create that waited for the boot
  Milliseconds janitor_interval{500};     // between looks for what has expired
  Milliseconds stray_interval{15'000};    // between looks for processes that belong to nobody
  uint64_t chunk_cache_mib = 4096;        // disk space for hot chunks of images, on top of what the store needs
  uint32_t fill_after_misses = 2;         // images/fill_policy.h
  RemoteOptions remote;
  Milliseconds store_interval{60'000};  // between looks for what the store can forget; also between two packs that are checked
  uint32_t longest_overlay_chain = 16;  // frozen overlays of one sandbox; past it they are merged in the background
  // kWhole where the kernel has no /dev/userfaultfd.
  MemoryFill memory_fill = MemoryFill::kOnDemand;
  Milliseconds finish_filling{20'000};  // at a graceful stop
  AgentUse agent = AgentUse::kRequired;
  std::vector<std::string> eager_templates;  // booted at start instead of at the first create; "*" = all
};

class Host {
 public:
  // Opens the state, takes the lock, adopts what still runs and undoes what was half made.
  // Errors: kConflict (another daemon uses this state), kCorrupt, kNoSpace, kPermission, kIo.
  static Result<std::unique_ptr<Host>> open(HostOptions options);
  virtual ~Host() = default;

  // ---- sandboxes ----
  // Errors: kNotFound (template), kInvalid, kNoMemory, kNoSpace (with the numbers), kUnavailable (KVM, boot; with console
  // tail).
  virtual Result<SandboxInfo> create(const CreateOptions& options) = 0;
  virtual std::vector<SandboxInfo> list() = 0;  // creating, running and failed ones, oldest first
  virtual Result<SandboxInfo> get(const std::string& id) = 0;
  virtual Result<SandboxInfo> patch(const std::string& id, const PatchOptions& options) = 0;
  // Kills and forgets it; its children live on. Removing a failed one works too.
  virtual Status remove(const std::string& id) = 0;
  // Errors: kNotQuiescent (strict, a task did not stand still; nothing changed), kInvalid (count), kNoMemory, kNoSpace.
  virtual Result<ForkResult> fork(const std::string& id, const ForkOptions& options) = 0;
  // Its memory, disk and processes go into the store, its process ends. Fork of a paused one starts copies of it.
  // Errors: kNoMemory, kNoSpace, kUnsupported; it goes on then.
  virtual Result<SandboxInfo> pause(const std::string& id) = 0;
  // Whatever is asked of a paused sandbox's inside resumes it as well.
  // Errors: kConflict (it is not paused), kNoMemory, kNoSpace, kUnsupported (another processor), kCorrupt; it stays paused
  // then.
  virtual Result<SandboxInfo> resume(const std::string& id) = 0;
  // The same sandbox where that snapshot was taken, by id or name; a paused one runs then.
  // Errors: kInvalid (vCPUs, memory or disk of another size), kConflict, and those of a resume; it is as it was then.
  virtual Result<SandboxInfo> rollback(const std::string& id, const std::string& snapshot) = 0;
  virtual std::vector<TreeNode> tree() = 0;
  // What the guest wrote to its console, newest max_bytes of it.
  virtual Result<std::string> logs(const std::string& id, uint64_t max_bytes = 1 << 20) = 0;

  // ---- commands ----
  virtual Result<std::unique_ptr<ExecStream>> exec(const std::string& id, const ExecOptions& options) = 0;
  virtual Result<std::vector<ProcessInfo>> processes(const std::string& id) = 0;
  // Replays the kept output from the given offsets on, then follows.
  virtual Result<std::unique_ptr<ExecStream>> attach(const std::string& id, uint32_t pid, uint64_t stdout_offset = 0,
                                                     uint64_t stderr_offset = 0) = 0;
  // Answers when the command's pipe took all bytes.
  virtual Status write_stdin(const std::string& id, uint32_t pid, std::string_view data, bool eof, Deadline deadline) = 0;
  virtual Status send_signal(const std::string& id, uint32_t pid, uint32_t signal) = 0;
  virtual Status resize(const std::string& id, uint32_t pid, WindowSize size) = 0;

  // ---- files ----  paths are absolute in the guest
  virtual Result<std::unique_ptr<FileReader>> read_file(const std::string& id, const std::string& path,
                                                        const ReadOptions& options) = 0;
  virtual Result<std::unique_ptr<FileWriter>> write_file(const std::string& id, const std::string& path,
                                                         const WriteOptions& options) = 0;
  virtual Result<std::vector<FileInfo>> list_files(const std::string& id, const std::string& path, uint32_t depth,
                                                   const std::string& user) = 0;
  virtual Result<FileInfo> stat_file(const std::string& id, const std::string& path, const std::string& user) = 0;
  virtual Status make_dir(const std::string& id, const std::string& path, bool parents, uint32_t permissions,
                          const std::string& user) = 0;
  virtual Status move_file(const std::string& id, const std::string& from, const std::string& to, const std::string& user) = 0;
  virtual Status remove_file(const std::string& id, const std::string& path, bool recursive, const std::string& user) = 0;

  // ---- snapshots ----  by id or name
  // Of a running sandbox, which goes on. Durable on this host when it returns.
  // Errors: kNotQuiescent (strict, a task did not stand still), kExists (name), kNoMemory, kNoSpace.
  virtual Result<SnapshotResult> snapshot(const std::string& id, const SnapshotOptions& options) = 0;
  virtual Result<std::vector<SnapshotInfo>> snapshots() = 0;  // newest first
  virtual Result<SnapshotInfo> get_snapshot(const std::string& id_or_name) = 0;
  virtual Result<SnapshotInfo> patch_snapshot(const std::string& id_or_name, const SnapshotPatch& patch) = 0;
  // Sandboxes that were started from it live on.
  virtual Status remove_snapshot(const std::string& id_or_name) = 0;

  // ---- templates ----
  virtual std::vector<TemplateInfo> templates() = 0;
  // Into the pending upload of that name; several files may be written at the same time.   Errors: kInvalid (name, file name).
  virtual Result<std::unique_ptr<TemplateFileWriter>> upload_template_file(const std::string& name,
                                                                           const std::string& file) = 0;
  // `template_json` is checked against the uploaded files (size and SHA-256), then the upload becomes the template at once.
  // Errors: kInvalid (json), kConflict (a file is missing), kCorrupt (digest or size differ).
  virtual Result<TemplateInfo> commit_template(const std::string& name, std::string_view template_json) = 0;
  // A snapshot becomes a template, new or instead of that of this name: its sandboxes start where the snapshot was taken. It
  // has a copy of its own, so the snapshot may go.   Errors: kNotFound (snapshot), kInvalid (name), kNotQuiescent (it was not
  // strict: its copies would share random numbers), kNoSpace.
  virtual Result<TemplateInfo> save_template(const std::string& name, const SaveTemplateOptions& options) = 0;
  // Sandboxes made from it live on.
  virtual Status remove_template(const std::string& name) = 0;

  // ---- images ----  all of their operations
  virtual Images& images() = 0;
  // The disk of a running sandbox, as of one instant, becomes an image; the sandbox goes on. Its file system is frozen for that
  // instant where the agent can do it in time.   Errors: kInvalid (name), kExists, kUnsupported (its base is no image),
  // kNoSpace, kCorrupt.
  virtual Result<CommittedDisk> commit_disk(const std::string& id, const std::string& name) = 0;

  // ---- the host ----
  virtual HostReport report() = 0;
  virtual Health health() = 0;  // never blocks
};

}  // namespace ramet::host
