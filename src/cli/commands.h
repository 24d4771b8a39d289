// cli/commands.h - the commands behind the command line, one function each, and what they take. Returned is the exit status.
// Not here: parsing (app.cc). Thread: one; exec and cp have helpers of their own that end with them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/session.h"

namespace ramet::cli {

struct ExecOptions {
  std::string id;
  std::vector<std::string> command;
  std::vector<std::string> env;
  std::string cwd, user, timeout;
  bool interactive = false;  // -i
  bool terminal = false;     // -t
  bool detach = false;
};
struct RunOptions {
  std::string template_name = "base";
  std::string snapshot;  // instead
  std::string name, ttl, idle, memory;
  std::optional<uint32_t> vcpus;
  std::vector<std::string> labels, env;
  bool remove = false;  // --rm
  ExecOptions exec;
};
struct ListOptions {
  std::string label;
};
struct ForkOptions {
  std::string id, ttl;
  uint32_t count = 1;
  bool partial = false, loose = false;
  std::vector<std::string> labels;
};
struct PauseOptions {
  std::vector<std::string> ids;
};
struct RollbackOptions {
  std::string sandbox, snapshot;
};
struct SnapshotOptions {
  std::string sandbox, name, keep;
  bool loose = false;
  std::vector<std::string> labels, names;
};
struct KillOptions {
  std::vector<std::string> ids;
  bool all = false;
};
struct LogsOptions {
  std::string id;
  bool follow = false;
};
struct CopyOptions {
  std::string from, to, user;
};
struct ImageOptions {
  std::string file, name, parent, other;
  std::string sandbox;      // whose disk it is
  std::string format, tag;  // empty: found out; the only one
  uint64_t disk_mib = 0;    // of the file system made of files; 0: fitting
  std::vector<std::string> names;
};
struct TemplateOptions {
  std::string name, directory;
  bool fresh = false;
  std::string file, from, memory;  // of a build by steps
  std::optional<uint32_t> vcpus;
  std::vector<std::string> steps;
  std::vector<std::string> names;
};
struct DiskOptions {
  std::string image;
  std::string writable;  // directory of the changes; empty: read-only
  std::string socket;    // to listen on
  std::optional<uint16_t> port;
  std::string target;  // where to mount
  std::string daemon_socket;
  std::string timeout = "30s";
};

// cmd_sandbox.cc
Result<int> cmd_run(Session& session, const RunOptions& options);
Result<int> cmd_ls(Session& session, const ListOptions& options);
Result<int> cmd_fork(Session& session, const ForkOptions& options);
Result<int> cmd_tree(Session& session);
// cmd_snapshot.cc
Result<int> cmd_pause(Session& session, const PauseOptions& options);
Result<int> cmd_resume(Session& session, const PauseOptions& options);
Result<int> cmd_rollback(Session& session, const RollbackOptions& options);
Result<int> cmd_snapshot_create(Session& session, const SnapshotOptions& options);
Result<int> cmd_snapshot_ls(Session& session);
Result<int> cmd_snapshot_rm(Session& session, const SnapshotOptions& options);
// cmd_sandbox.cc
Result<int> cmd_kill(Session& session, const KillOptions& options);
Result<int> cmd_logs(Session& session, const LogsOptions& options);
// cmd_exec.cc
Result<int> cmd_exec(Session& session, const ExecOptions& options);
Result<int> cmd_ps(Session& session, const std::string& id);
// Runs in the sandbox with this full id.
Result<int> exec_in(Session& session, const std::string& id, const ExecOptions& options);
// cmd_cp.cc
Result<int> cmd_cp(Session& session, const CopyOptions& options);
// cmd_template.cc
Result<int> cmd_template_build(Session& session, const TemplateOptions& options);
Result<int> cmd_template_push(Session& session, const TemplateOptions& options);
Result<int> cmd_template_ls(Session& session);
Result<int> cmd_template_rm(Session& session, const TemplateOptions& options);
// cmd_disk.cc
Result<int> cmd_disk_serve(Session& session, const DiskOptions& options);
Result<int> cmd_disk_mount(Session& session, const DiskOptions& options);
// cmd_image.cc
Result<int> cmd_image_import(Session& session, const ImageOptions& options);
Result<int> cmd_image_export(Session& session, const ImageOptions& options);
Result<int> cmd_image_commit(Session& session, const ImageOptions& options);
Result<int> cmd_image_ls(Session& session);
Result<int> cmd_image_rm(Session& session, const ImageOptions& options);
Result<int> cmd_image_diff(Session& session, const ImageOptions& options);
// cmd_machine.cc
Result<int> cmd_machine(Session& session, const std::vector<std::string>& words);
// doctor.cc
Result<int> cmd_doctor(Session& session);
// complete.cc
Result<int> cmd_completion(const std::string& shell);

}  // namespace ramet::cli
