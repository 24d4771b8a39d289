// api/testing/fake_host.h - host::Host without machines, for tests of the layers above: sandboxes are rows in memory, commands
// are local processes, files are local files, images are real. Names steer failures: template `full` has no room, `slow` takes
// 300 ms, a fork with a label `fail=K` fails at child K, template `stuck` cannot be frozen,
// its disk is as after a crash. Not here: anything real; nothing
// outside tests links it. Thread: like Host.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "host/host.h"
#include "host/images/images.h"

namespace ramet::api::testing {

// One local process and all it has written.
class FakeProcess {
 public:
  static Result<std::shared_ptr<FakeProcess>> start(const host::ExecOptions& options);
  ~FakeProcess();

  host::ProcessInfo info() const;
  Status write_stdin(std::string_view data, bool eof);
  Status send_signal(uint32_t signal);
  Status resize(host::WindowSize size);

  uint32_t pid = 0;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::string out, err;  // guarded by mutex, as all below
  std::optional<host::ExitInfo> exit;

 private:
  void read_output(int out_fd, int err_fd);
  host::ExecOptions options_;
  int stdin_fd_ = -1;
  int64_t started_ns_ = 0;
  std::thread reader_;
};

class FakeHost final : public host::Host {
 public:
  FakeHost();
  ~FakeHost() override;

  std::atomic<int> file_writes = 0;  // pieces that all written files came in

  Result<host::SandboxInfo> create(const host::CreateOptions& options) override;
  std::vector<host::SandboxInfo> list() override;
  Result<host::SandboxInfo> get(const std::string& id) override;
  Result<host::SandboxInfo> patch(const std::string& id, const host::PatchOptions& options) override;
  Status remove(const std::string& id) override;
  Result<host::ForkResult> fork(const std::string& id, const host::ForkOptions& options) override;
  Result<host::SandboxInfo> pause(const std::string& id) override;
  Result<host::SandboxInfo> resume(const std::string& id) override;
  Result<host::SandboxInfo> rollback(const std::string& id, const std::string& snapshot) override;
  Result<host::SnapshotResult> snapshot(const std::string& id, const host::SnapshotOptions& options) override;
  Result<std::vector<host::SnapshotInfo>> snapshots() override;
  Result<host::SnapshotInfo> get_snapshot(const std::string& id) override;
  Result<host::SnapshotInfo> patch_snapshot(const std::string& id, const host::SnapshotPatch& patch) override;
  Status remove_snapshot(const std::string& id) override;
  std::vector<host::TreeNode> tree() override;
  Result<std::string> logs(const std::string& id, uint64_t max_bytes) override;

  Result<std::unique_ptr<host::ExecStream>> exec(const std::string& id, const host::ExecOptions& options) override;
  Result<std::vector<host::ProcessInfo>> processes(const std::string& id) override;
  Result<std::unique_ptr<host::ExecStream>> attach(const std::string& id, uint32_t pid, uint64_t stdout_offset,
                                                   uint64_t stderr_offset) override;
  Status write_stdin(const std::string& id, uint32_t pid, std::string_view data, bool eof, Deadline deadline) override;
  Status send_signal(const std::string& id, uint32_t pid, uint32_t signal) override;
  Status resize(const std::string& id, uint32_t pid, host::WindowSize size) override;

  Result<std::unique_ptr<host::FileReader>> read_file(const std::string& id, const std::string& path,
                                                      const host::ReadOptions& options) override;
  Result<std::unique_ptr<host::FileWriter>> write_file(const std::string& id, const std::string& path,
                                                       const host::WriteOptions& options) override;
  Result<std::vector<host::FileInfo>> list_files(const std::string& id, const std::string& path, uint32_t depth,
                                                 const std::string& user) override;
  Result<host::FileInfo> stat_file(const std::string& id, const std::string& path, const std::string& user) override;
  Status make_dir(const std::string& id, const std::string& path, bool parents, uint32_t permissions,
                  const std::string& user) override;
  Status move_file(const std::string& id, const std::string& from, const std::string& to, const std::string& user) override;
  Status remove_file(const std::string& id, const std::string& path, bool recursive, const std::string& user) override;

  std::vector<host::TemplateInfo> templates() override;
  Result<std::unique_ptr<host::TemplateFileWriter>> upload_template_file(const std::string& name,
                                                                         const std::string& file) override;
  Result<host::TemplateInfo> commit_template(const std::string& name, std::string_view template_json) override;
  Result<host::TemplateInfo> save_template(const std::string& name, const host::SaveTemplateOptions& options) override;
  Status remove_template(const std::string& name) override;

  host::Images& images() override { return *images_; }
  // Of one block that holds the sandbox's id.
  Result<host::CommittedDisk> commit_disk(const std::string& id, const std::string& name) override;

  host::HostReport report() override;
  host::Health health() override { return {true, "0-test", ""}; }

  // What was uploaded: "name/file" -> bytes.
  std::map<std::string, std::string> uploads();
  std::atomic<int> creates = 0;

 private:
  struct Box {
    host::SandboxInfo info;
    std::string console;
    std::map<uint32_t, std::shared_ptr<FakeProcess>> processes;
  };
  friend class FakeUpload;
  Result<host::SandboxInfo> change_state(const std::string& id, host::SandboxState from, host::SandboxState to);

  Result<std::shared_ptr<FakeProcess>> process(const std::string& id, uint32_t pid);
  Status check(const std::string& id);
  host::SandboxInfo add_box(host::SandboxInfo info);

  std::mutex mutex_;
  uint64_t next_id_ = 0x3f00;
  std::vector<host::SnapshotInfo> snapshots_;
  size_t snapshots_made_ = 0;
  std::map<std::string, Box> boxes_;  // guarded by mutex_, as all below
  std::vector<host::TemplateInfo> templates_;
  std::map<std::string, std::string> uploads_;
  std::string store_directory_;
  std::unique_ptr<host::Images> images_;  // the real thing
};

}  // namespace ramet::api::testing
