// host/types.h - plain values that cross the border of the host: what callers ask for and what they are told.
// Not here: behaviour (host.h), rows of the registry (registry.h). Thread: values.
// Units: _ns since the epoch are wall clock, every duration has its unit in the name, sizes are bytes unless named _mib.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace ramet::host {

// The life of a sandbox as others see it.
//
//   create/fork           agent confirmed identity
//   ───────────► creating ───────────────────────► running ──┐ remove, ttl, power off,
//                   │                                 │       │ reset by the guest
//                   │ any failure, daemon died        │       ▼
//                   └──► (undone, no row left)        │      gone   kept only while a descendant lives
//                                                     ▼
//                        the VMM died by itself:   failed ──────► gone   remove, ttl
//
//   running ── pause, idle ──► pausing ── stored, its process ended ──► paused ── resume, any request ──► resuming ──► running
//       ▲                   │ any failure                          ▲  │ remove                         │ any failure
//       └───────────────────┘                                      │  └──► gone                        │
//                                                                  └───────────────────────────────────┘
// A failed sandbox has no process, memory or disk any more, only its row, its reason and its console log. A paused one has its
// saved state and its row, and nothing else.
enum class SandboxState { kCreating, kRunning, kPausing, kPaused, kResuming, kFailed, kGone };
const char* state_name(SandboxState state);

// When the memory of a snapshot comes to the machines that run on it.
enum class MemoryFill {
  kWhole,         // all of it before any of them starts
  kOnDemand,      // what they touch at once, the rest meanwhile
  kOnlyOnDemand,  // what they touch, and never more: for tests
};

using Labels = std::map<std::string, std::string>;

struct CreateTiming {
  double total_ms = 0;          // request to ready
  double fork_ms = 0;           // fork request to the new VM running
  double identify_ms = 0;       // VM running to identity confirmed by the agent
  double template_boot_ms = 0;  // part of total: the template had to be booted first; else 0
};

struct SandboxInfo {
  std::string id;
  std::string template_name;
  SandboxState state = SandboxState::kCreating;
  std::string state_reason;              // one sentence when failed or gone
  std::optional<std::string> parent_id;  // forked from; none when created from a template
  std::string family_id;                 // id of the first sandbox of its fork family
  uint32_t depth = 0;                    // 0: created from a template
  int64_t created_at_ns = 0;
  std::optional<int64_t> expires_at_ns;
  Labels labels;
  std::map<std::string, std::string> env;  // default environment of its commands
  uint64_t idle_seconds = 0;               // without use, then it is paused; 0: never by itself
  uint32_t vcpus = 0;
  uint64_t memory_mib = 0;
  uint64_t disk_bytes = 0;
  uint32_t generation = 0;  // forks since the image, as the monitor counts them
  CreateTiming timing;
};

struct CreateOptions {
  std::string template_name;      // one of the two
  std::string snapshot;           // its id or name; then the machine is as large as it was
  std::optional<uint32_t> vcpus;  // default: the template's
  std::optional<uint64_t> memory_mib;
  std::optional<uint64_t> ttl_seconds;  // absent: the host's default; 0: never
  uint64_t idle_seconds = 0;            // 0: never paused by itself
  Labels labels;
  std::map<std::string, std::string> env;
};

struct PatchOptions {
  std::optional<uint64_t> ttl_seconds;   // from now, of a paused one from its resume; 0: never
  std::optional<uint64_t> idle_seconds;  // from now; 0: never paused by itself
  std::optional<Labels> labels;          // replaces all labels
};

enum class ForkMode {
  kAll,      // any failure ends the started children
  kPartial,  // started and failed are both reported
};
enum class ForkStrictness {
  kStrict,  // user tasks are frozen around the instant; no child repeats a random number of its parent
  kLoose,
};
struct ForkOptions {
  uint32_t count = 1;
  ForkMode mode = ForkMode::kAll;
  ForkStrictness strictness = ForkStrictness::kStrict;
  std::optional<uint64_t> ttl_seconds;  // absent: the host's default; 0: never
  std::optional<Labels> labels;         // absent: the parent's
};
struct ForkFailure {
  uint32_t index = 0;  // 0 .. count-1
  Error error;
};
struct ForkTiming {
  double freeze_ms = 0;          // agent froze the user tasks
  double vcpu_stop_ms = 0;       // last KVM_RUN exit to first re-entry
  double parent_pause_ms = 0;    // first moment user tasks stood still to the parent's thaw (strict), else vcpu_stop_ms
  double fork_ms = 0;            // fork request to the monitor's answer
  std::vector<double> ready_ms;  // per started child, request to identity confirmed
};
struct ForkResult {
  std::vector<SandboxInfo> children;  // started, in the order of their index
  std::vector<ForkFailure> failed;
  ForkTiming timing;
};

// A machine at one instant, kept in the store: memory, disk and processors.
struct SnapshotInfo {
  std::string id;
  std::string name;  // empty: none
  std::string sandbox_id;
  std::string template_name;
  std::string cpu_model;  // of the host it was taken on: only such a one can start it
  bool strict = false;    // its user tasks stood still at the instant
  int64_t created_at_ns = 0;
  std::optional<int64_t> expires_at_ns;  // none: kept until deleted
  uint32_t vcpus = 0;
  uint64_t memory_mib = 0;
  uint64_t disk_bytes = 0;
  Labels labels;
  std::map<std::string, std::string> env;
};
struct SnapshotOptions {
  std::string name;  // empty: none
  ForkStrictness strictness = ForkStrictness::kStrict;
  std::optional<uint64_t> keep_seconds;  // absent: the host's default; 0: until deleted
  bool drop_caches = false;              // of the guest, of files, before the instant: it is smaller, and colder
  Labels labels;
};
struct SnapshotPatch {
  std::optional<std::string> name;       // empty: none any more
  std::optional<uint64_t> keep_seconds;  // from now; 0: until deleted
  std::optional<Labels> labels;          // replaces all labels
};
struct SnapshotTiming {
  double freeze_ms = 0;        // agent froze the user tasks
  double vcpu_stop_ms = 0;     // last KVM_RUN exit to first re-entry
  double parent_pause_ms = 0;  // first moment user tasks stood still to their thaw (strict), else vcpu_stop_ms
  double store_ms = 0;         // in the background of the sandbox
};
struct SnapshotResult {
  SnapshotInfo info;
  SnapshotTiming timing;
  uint64_t changed_pages = 0;  // of memory, other than in what it stands on
  uint64_t memory_chunks = 0;  // of 512 KiB, put
  uint64_t disk_chunks = 0;    // of 16 MiB, put
};

struct TreeNode {
  SandboxInfo info;
  uint64_t ram_diverged_bytes = 0;  // differs from the image
  uint64_t ram_own_bytes = 0;       // of these, held by nobody else
  uint64_t ram_share_bytes = 0;     // fair share of anonymous memory; sums to the host's
  uint64_t disk_own_bytes = 0;      // allocated blocks of its own overlay files
  std::vector<TreeNode> children;
};

struct TemplateFile {
  std::string name;  // vmlinux, initrd, disk.img
  uint64_t bytes = 0;
  std::string sha256;  // hex
};
struct TemplateInfo {
  std::string name;
  std::string digest;  // of its description, which names all that it consists of
  std::string kernel_release;
  uint32_t vcpus = 0;
  uint64_t memory_mib = 0;
  uint64_t disk_bytes = 0;
  std::string cmdline;
  std::vector<TemplateFile> files;         // empty: it is a saved machine, and starts where that was
  std::string saved;                       // the snapshot of its own that it is then
  std::map<std::string, std::string> env;  // default environment of its sandboxes' commands
  int64_t committed_at_ns = 0;
  std::string status;         // cold, booting, ready, failed
  std::string status_reason;  // why it failed, with the end of the console
  std::string started_from;   // when it is ready: boot, or store (an earlier boot); empty: an earlier daemon did
};

struct SaveTemplateOptions {
  std::string snapshot;  // its id or name
  std::map<std::string, std::string> env;
};

struct WindowSize {
  uint32_t rows = 24;
  uint32_t cols = 80;
};
struct ExecOptions {
  std::vector<std::string> argv;  // either argv
  std::string shell;              // or a shell line; with a pty neither: a login shell
  std::map<std::string, std::string> env;
  std::string cwd;
  std::string user;
  bool stdin_open = false;  // input follows (a pty always has input)
  std::optional<WindowSize> pty;
  std::string term;
  std::optional<uint64_t> timeout_ms;
  bool detach = false;  // the stream ends after `started`
  std::string tag;
};
struct ExitInfo {
  uint32_t code = 0;
  uint32_t signal = 0;  // 0: it exited by itself
  bool timed_out = false;
  double duration_ms = 0;
};
struct ExecEvent {
  enum class Kind { kStarted, kStdout, kStderr, kExit, kDetached } kind = Kind::kStarted;
  uint32_t pid = 0;     // kStarted
  std::string data;     // kStdout, kStderr: any bytes
  uint64_t offset = 0;  // of data's first byte in its stream; a jump means output was dropped
  ExitInfo exit;        // kExit
};
struct ProcessInfo {
  uint32_t pid = 0;
  std::vector<std::string> argv;
  std::string user;
  std::string tag;
  bool pty = false;
  bool running = false;
  std::optional<ExitInfo> exit;
  int64_t started_at_ns = 0;
  uint64_t stdout_bytes = 0;
  uint64_t stderr_bytes = 0;
  uint32_t attached = 0;
};

enum class FileType { kUnknown, kRegular, kDirectory, kSymlink, kOther };
const char* file_type_name(FileType type);  // unknown, file, directory, symlink, other
struct FileInfo {
  std::string path;  // bytes as the guest has them
  FileType type = FileType::kUnknown;
  uint64_t size_bytes = 0;
  uint32_t mode = 0;  // 07777
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::string user;
  std::string group;
  int64_t mtime_ns = 0;
  std::string symlink_target;
};
struct ReadOptions {
  std::string user;
  uint64_t offset = 0;
  uint64_t length = 0;  // 0: to the end
};
enum class WriteMode { kReplace, kAt, kAppend };
struct WriteOptions {
  WriteMode mode = WriteMode::kReplace;
  uint64_t offset = 0;       // kAt
  uint32_t permissions = 0;  // 0: those of the replaced file, else 0644
  std::string user;
  bool create_parents = true;
};

struct KvmReport {
  bool usable = false;
  std::string detail;  // the probe's own words
};
struct CgroupReport {
  bool usable = false;  // v2 with at least memory
  std::string root;
  std::vector<std::string> controllers;
};
struct ImageInfo {
  std::string name;
  uint64_t bytes = 0;         // as its reader sees it
  uint64_t stored_bytes = 0;  // what it needs in the store
  uint64_t unique_bytes = 0;  // of these, needed by no other image
};
// The disk of a sandbox, made an image.
struct CommittedDisk {
  ImageInfo image;
  bool clean = false;         // the guest's file system was frozen at the instant; else as after a crash
  std::string why_not_clean;  // one sentence
  double frozen_ms = 0;       // how long writes of the guest waited
};
struct StoreReport {
  uint64_t images = 0, template_disks = 0;
  uint64_t packs = 0, pack_bytes = 0, chunks = 0;
  uint64_t cached_chunks = 0, cache_bytes = 0, cache_leased_bytes = 0, cache_max_bytes = 0;
  // Since the daemon began.
  uint64_t readers = 0;                        // connections now
  uint64_t asks = 0;                           // blocks that readers asked for
  uint64_t fetched_bytes = 0;                  // as stored, of frames read for them
  uint64_t distinct_frame_bytes = 0;           // the same, each frame once
  uint64_t filled_bytes = 0;                   // as stored, of chunks brought into the cache
  uint64_t local_bytes = 0, remote_bytes = 0;  // of packs, for whatever purpose
  uint64_t checked_bytes = 0;                  // of these, to look over the packs on this host
  uint64_t failed = 0;                         // asks answered with an error
  bool has_remote = false;
  std::string remote_trouble;  // empty: none
};
struct HostReport {
  std::string version;
  std::string state_dir;
  std::string runtime_dir;
  KvmReport kvm;
  CgroupReport cgroup;
  uint64_t memory_total_bytes = 0;
  uint64_t memory_available_bytes = 0;
  uint64_t memory_reserved_bytes = 0;  // promised to sandboxes and not yet used
  uint64_t state_free_bytes = 0;
  bool immutable_overlays = false;  // the state's file system can make a frozen overlay immutable
  uint32_t cpus = 0;
  uint32_t sandboxes_running = 0;
  std::string kernel;
  StoreReport store;
  std::vector<std::string> warnings;  // what works less well here, one sentence each
};
struct Health {
  bool ok = false;
  std::string version;
  std::string detail;
};

}  // namespace ramet::host
