// host/host_impl.h - Host, wired. The table of sandboxes and the order in which parts are built and torn down live here;
// each group of operations has its own file: host_create.cc, host_fork.cc, host_end.cc, host_guest.cc, host_report.cc,
// host_images.cc, host_commit.cc, host_snapshot.cc, host_pause.cc, host_idle.cc, host_rollback.cc, recovery.cc. Thread: as
// host.h. Threads of its own: watcher, janitor, slow, idle (README.md).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "abi/agent.pb.h"
#include "host/admission.h"
#include "host/background.h"
#include "host/birth.h"
#include "host/context.h"
#include "host/fork_outcomes.h"
#include "host/frozen_machine.h"
#include "host/metering.h"
#include "host/snapshots.h"
#include "host/zygotes.h"

namespace ramet::host {

// Somebody does something with a sandbox, or has a stream of it open, as long as this lives.
using InUse = std::shared_ptr<const void>;

// One sandbox in memory. Shared by the table and by calls under way; the last one drops it.
struct Sandbox {
  std::mutex mutex;
  std::condition_variable changed;           // its state is another
  SandboxInfo info;                          // guarded by mutex
  std::shared_ptr<Machine> machine;          // guarded by mutex; set while running
  bool ending = false;                       // guarded by mutex: somebody is taking it down
  uint32_t uses = 0;                         // guarded by mutex
  Deadline used_at = MonotonicClock::now();  // guarded by mutex: the last use began or ended, or it was started
  bool idle_look = false;                    // guarded by mutex: whether it is idle is being found out

  std::mutex fork_mutex;              // one fork of it at a time
  std::atomic<int> forks_pending{0};  // no page table walk meanwhile
  MemoryUse memory_use;               // guarded by mutex
  Deadline memory_use_until{};        // guarded by mutex: the measurement is fresh until then
  std::string merged_overlay;         // slow thread only: the last one that was merged for it
};

// No page table walk meanwhile.
class ForkPending {
 public:
  explicit ForkPending(Sandbox& s) : count_(s.forks_pending) { count_++; }
  ~ForkPending() { count_--; }
  ForkPending(const ForkPending&) = delete;
  ForkPending& operator=(const ForkPending&) = delete;

 private:
  std::atomic<int>& count_;
};

class HostImpl final : public Host {
 public:
  explicit HostImpl(HostOptions options);
  ~HostImpl() override;
  Status start();

  Result<SandboxInfo> create(const CreateOptions& options) override;
  std::vector<SandboxInfo> list() override;
  Result<SandboxInfo> get(const std::string& id) override;
  Result<SandboxInfo> patch(const std::string& id, const PatchOptions& options) override;
  Status remove(const std::string& id) override;
  Result<ForkResult> fork(const std::string& id, const ForkOptions& options) override;
  Result<SandboxInfo> pause(const std::string& id) override;
  Result<SandboxInfo> resume(const std::string& id) override;
  Result<SandboxInfo> rollback(const std::string& id, const std::string& snapshot) override;
  Result<SnapshotResult> snapshot(const std::string& id, const SnapshotOptions& options) override;
  Result<std::vector<SnapshotInfo>> snapshots() override;
  Result<SnapshotInfo> get_snapshot(const std::string& id_or_name) override;
  Result<SnapshotInfo> patch_snapshot(const std::string& id_or_name, const SnapshotPatch& patch) override;
  Status remove_snapshot(const std::string& id_or_name) override;
  std::vector<TreeNode> tree() override;
  Result<std::string> logs(const std::string& id, uint64_t max_bytes) override;

  Result<std::unique_ptr<ExecStream>> exec(const std::string& id, const ExecOptions& options) override;
  Result<std::vector<ProcessInfo>> processes(const std::string& id) override;
  Result<std::unique_ptr<ExecStream>> attach(const std::string& id, uint32_t pid, uint64_t stdout_offset,
                                             uint64_t stderr_offset) override;
  Status write_stdin(const std::string& id, uint32_t pid, std::string_view data, bool eof, Deadline deadline) override;
  Status send_signal(const std::string& id, uint32_t pid, uint32_t signal) override;
  Status resize(const std::string& id, uint32_t pid, WindowSize size) override;

  Result<std::unique_ptr<FileReader>> read_file(const std::string& id, const std::string& path,
                                                const ReadOptions& options) override;
  Result<std::unique_ptr<FileWriter>> write_file(const std::string& id, const std::string& path,
                                                 const WriteOptions& options) override;
  Result<std::vector<FileInfo>> list_files(const std::string& id, const std::string& path, uint32_t depth,
                                           const std::string& user) override;
  Result<FileInfo> stat_file(const std::string& id, const std::string& path, const std::string& user) override;
  Status make_dir(const std::string& id, const std::string& path, bool parents, uint32_t permissions,
                  const std::string& user) override;
  Status move_file(const std::string& id, const std::string& from, const std::string& to, const std::string& user) override;
  Status remove_file(const std::string& id, const std::string& path, bool recursive, const std::string& user) override;

  std::vector<TemplateInfo> templates() override;
  Result<std::unique_ptr<TemplateFileWriter>> upload_template_file(const std::string& name, const std::string& file) override;
  Result<TemplateInfo> commit_template(const std::string& name, std::string_view template_json) override;
  Result<TemplateInfo> save_template(const std::string& name, const SaveTemplateOptions& options) override;
  Status remove_template(const std::string& name) override;

  Images& images() override { return *images_; }
  Result<CommittedDisk> commit_disk(const std::string& id, const std::string& name) override;

  HostReport report() override;
  Health health() override;

 private:
  // ---- table (host_impl.cc) ----
  Result<std::shared_ptr<Sandbox>> find(const std::string& id);
  struct Running {
    std::shared_ptr<Sandbox> sandbox;
    std::shared_ptr<Machine> machine;
    SandboxInfo info;
    InUse use = nullptr;
  };
  // Nobody forks, snapshots, pauses or replaces its machine meanwhile.
  struct Turn {
    Running running;
    std::unique_lock<std::mutex> sandbox, monitor;
  };
  // The machine may be another one than the caller saw: it may have been rolled back before.   Errors: kConflict (it ended).
  static Result<Turn> wait_turn(const Running& seen);
  // Errors: kNotFound, kConflict (creating, failed).
  Result<Running> find_running(const std::string& id);
  // With its mutex held.
  static Result<Running> running_of(const std::shared_ptr<Sandbox>& sandbox);
  // Waits while it is on its way between two states.   Errors: kNotFound, kTimeout.
  Result<std::shared_ptr<Sandbox>> settled(const std::string& id, Deadline deadline);
  // As it is when it has settled; one that runs is in use from then on.   Errors: kNotFound, kConflict, kTimeout.
  using RunningOrPaused = std::variant<Running, std::shared_ptr<Sandbox>>;
  Result<RunningOrPaused> running_or_paused(const std::string& id);
  std::vector<std::shared_ptr<Sandbox>> all_sandboxes();
  std::shared_ptr<Sandbox> insert(const SandboxInfo& info);
  void erase(const std::string& id, const std::string& why);
  std::optional<int64_t> expiry(std::optional<uint64_t> ttl_seconds) const;
  Status set_time_to_live(const std::string& id, Sandbox& sandbox, uint64_t seconds);

  // ---- templates (host_template.cc) ----
  Zygotes::Store store_of_templates();
  void forget_machines_of(const std::string& template_name);

  // ---- births (host_create.cc) ----
  Status check_room_for(uint32_t count);
  // `parent`: paused, whose saved state the zygote is; null: none. `tasks`: kStrict: they stood still when it was made.
  Result<SandboxInfo> create_from(const Zygotes::Zygote& zygote, const CreateOptions& options, int64_t begin_ns,
                                  ForkStrictness tasks, const SandboxInfo* parent);
  Result<SandboxInfo> create_from_snapshot(const SnapshotDetails& snapshot, const CreateOptions& options, int64_t begin_ns,
                                           const SandboxInfo* parent);
  static Result<SandboxInfo> from_zygote(const std::function<Result<Zygotes::Zygote>()>& acquire,
                                         const std::function<Result<SandboxInfo>(const Zygotes::Zygote&)>& create);
  void end_child(Birth& birth);
  void undo_resume(Birth& birth);
  enum class Origin { kNew, kPaused, kAside };
  // A fork of the zygote, from its row to published. Where it fails nothing of it is left, but a paused one stays paused, and
  // of one whose machine was put aside the row stays as it is.
  Status bring_to_life(const Zygotes::Zygote& zygote, Birth& birth, ForkStrictness tasks, Origin origin);
  // Child rows become running together, or stay creating.
  Status publish(std::vector<Birth*> births);

  // ---- snapshots (host_snapshot.cc) ----
  // With the locks of a fork held.   Errors: as FrozenMachine::make, kNoMemory, kNoSpace.
  Result<std::unique_ptr<FrozenMachine>> freeze_machine(const Running& r, FrozenTasks* tasks);

  // ---- pause and resume (host_pause.cc) ----
  void set_state(Sandbox& s, SandboxState state);
  // With its mutex held, at the moment from which on requests wait.
  using StillWanted = std::function<bool(const Sandbox&)>;
  Result<SandboxInfo> pause_if(const Running& seen, const StillWanted& wanted);
  Result<Snapshots::Stored> stop_and_store(const Running& r);
  static Status stop_running(Machine& machine);
  static Status run_on(Machine& machine);
  void give_back(const SandboxInfo& info);
  Status resume_from_saved(const std::shared_ptr<Sandbox>& s, int64_t begin_ns);
  Result<ForkResult> fork_paused(const std::shared_ptr<Sandbox>& s, const ForkOptions& options, int64_t begin_ns);
  // For whoever wants something of it: a paused one is resumed first, one that is on its way is waited for.
  Result<Running> wake(const std::string& id);

  // ---- rollback (host_rollback.cc) ----
  static Birth reborn(const MachineRow& row, const Zygotes::Zygote& zygote, int64_t begin_ns);
  Result<SandboxInfo> roll_back_running(const Running& r, const Zygotes::Zygote& zygote, const SnapshotDetails& to,
                                        int64_t begin_ns);
  Result<SandboxInfo> roll_back_paused(const std::shared_ptr<Sandbox>& s, const Zygotes::Zygote& zygote,
                                       const SnapshotDetails& to, int64_t begin_ns);
  Status put_aside(const Running& r, const std::string& aside_id);
  void take_back(const Running& r, const std::string& aside_id);
  // Its socket has its name again. None under the other: it never lost it.
  void restore_socket(const std::string& id, const std::string& aside_id);

  // ---- pause when idle (host_idle.cc) ----
  static InUse begin_use(const std::shared_ptr<Sandbox>& sandbox);  // with its mutex held
  void pause_idle();                                                // janitor's thread
  void pause_if_idle(const std::shared_ptr<Sandbox>& sandbox);      // idle thread
  Status note_running_commands(const Running& r);

  // ---- ends (host_end.cc) ----
  void on_machine_end(const std::string& id);      // watcher's thread
  void handle_machine_end(const std::string& id);  // janitor's thread
  // kGone: everything goes, the row too unless a descendant lives. kFailed: console and row stay.
  Status end_sandbox(const std::shared_ptr<Sandbox>& sandbox, SandboxState state, const std::string& reason);
  // Rows of gone ones stay while they have living descendants, and go upwards with the last of them.
  // A few MiB that stand ready: on a full disk the registry could not even note that something is to be deleted.
  void drop_ballast();
  void restore_ballast();
  void forget_childless(std::optional<std::string> id, const std::string& why);
  void evacuate_leaf(const std::string& family, const std::string& id);
  void tick();
  void end_expired();
  void drop_oldest_failed();
  void kill_strays();
  void tend_overlays();  // slow thread: deletes doomed ones, seals frozen ones

  // ---- images (host_images.cc) ----
  Status open_images();
  void tend_images();  // slow thread, again and again: disks that nobody needs any more go, one pack is checked
  // A new socket for a machine whose daemon died. Its base stays in the store as long as its row.
  Status attach_base(const MachineRow& row, Machine& machine);

  // ---- disks as images (host_commit.cc) ----
  // With the locks of a fork held.   Errors: those of the monitor; nothing changed, or the registry knows.
  Status freeze_overlay(const Running& r);
  Result<std::vector<image::OverlayFiles>> open_frozen(const std::string& id);

  // ---- chains (overlay_merge.cc), slow thread ----
  void shorten_chains();
  Status shorten_chain(const std::string& id);
  Result<std::vector<std::string>> forget_covered(const Running& r);

  // ---- guests (host_guest.cc) ----
  struct GuestStream {
    UniqueFd fd;
    InUse use;
  };
  Result<GuestStream> guest_stream(const std::string& id);
  Result<abi::Result> guest_call(const std::string& id, const abi::Request& request, Deadline deadline);

  // ---- start (recovery.cc) ----
  Status recover();
  void adopt_all(std::vector<MachineRow>& rows, bool machine_rebooted);
  void settle_forks();
  void finish_filling();
  Status take_over_filling(const MachineRow& row, Machine& machine);
  Status settle_rollbacks(std::vector<MachineRow>& rows, bool machine_rebooted);
  bool go_on_after_pause(Machine& machine, SandboxInfo& info);
  void thaw_soon(const std::string& id);
  void keep_paused(const MachineRow& row);
  void undo_half_made(const std::vector<MachineRow>& rows);
  void sweep_orphans();
  bool adopt_one(const MachineRow& row);

  const HostOptions options_;
  const Paths paths_;
  UniqueFd lock_;
  std::unique_ptr<Watcher> watcher_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<ForkOutcomes> fork_outcomes_;
  OverlayStore overlays_;
  CgroupTree cgroups_;
  Resources resources_;
  Admission admission_;
  std::unique_ptr<Images> images_;
  std::unique_ptr<TemplateStore> template_store_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Zygotes> zygotes_;
  std::unique_ptr<Snapshots> snapshots_;

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Sandbox>> sandboxes_;   // guarded by mutex_
  std::deque<std::pair<std::string, std::string>> tombstones_;  // guarded by mutex_: recently ended, for clear answers
  KvmReport kvm_;                                               // guarded by mutex_
  // Families in whose cgroup leaves a birth is under way: processes there may not be in the registry yet, and are no strays.
  class BirthUnderWay {
   public:
    BirthUnderWay(HostImpl& host, const std::string& family);
    ~BirthUnderWay();
    BirthUnderWay(const BirthUnderWay&) = delete;
    BirthUnderWay& operator=(const BirthUnderWay&) = delete;

   private:
    HostImpl& host_;
    const std::string family_;
  };
  std::mutex births_mutex_;
  std::multiset<std::string> births_under_way_;  // guarded by births_mutex_

  std::map<pid_t, int> stray_sightings_;  // janitor's thread only
  std::atomic<bool> sealing_works_{false};
  Deadline next_stray_check_{};  // janitor's thread only

  std::unique_ptr<Background> slow_, idle_, janitor_;  // last: they use everything above
};

}  // namespace ramet::host
