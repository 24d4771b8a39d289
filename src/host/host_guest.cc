// What is done inside a running sandbox: every method finds the machine, asks it for a stream to its agent, and hands that on.
#include "host/agent_client.h"
#include "host/agent_streams.h"
#include "host/host_impl.h"

namespace ramet::host {
namespace {

constexpr size_t kMaxListed = 200'000;

ExitInfo exit_info(const abi::Exit& e) {
  return {e.code(), e.signal(), e.timed_out(), static_cast<double>(e.duration_ns()) / 1e6};
}

}  // namespace

Result<HostImpl::GuestStream> HostImpl::guest_stream(const std::string& id) {
  TRY_ASSIGN(Running r, wake(id));
  Result<UniqueFd> stream = r.machine->agent_stream(deadline_after(options_.agent_deadline));
  if (stream) return GuestStream{std::move(*stream), std::move(r.use)};
  return tl::unexpected<Error>(std::move(stream).error().with_context("sandbox '" + id + "'"));
}

Result<abi::Result> HostImpl::guest_call(const std::string& id, const abi::Request& request, Deadline deadline) {
  TRY_ASSIGN(GuestStream stream, guest_stream(id));
  return agent_call(std::move(stream.fd), request, deadline);
}

Result<std::unique_ptr<ExecStream>> HostImpl::exec(const std::string& id, const ExecOptions& options) {
  TRY_ASSIGN(const SandboxInfo info, get(id));
  ExecOptions with_env = options;
  with_env.env.insert(info.env.begin(), info.env.end());  // the call's own words win
  TRY_ASSIGN(GuestStream stream, guest_stream(id));
  return start_exec(std::move(stream.fd), std::move(stream.use), with_env, options_.agent_deadline);
}

Result<std::vector<ProcessInfo>> HostImpl::processes(const std::string& id) {
  abi::Request request;
  request.mutable_processes();
  TRY_ASSIGN(const abi::Result result, guest_call(id, request, deadline_after(options_.agent_deadline)));
  std::vector<ProcessInfo> out;
  for (const abi::ProcessInfo& p : result.processes().processes()) {
    ProcessInfo i;
    i.pid = p.pid();
    i.argv.assign(p.argv().begin(), p.argv().end());
    i.user = p.user();
    i.tag = p.tag();
    i.pty = p.pty();
    i.running = p.running();
    if (p.has_exit()) i.exit = exit_info(p.exit());
    i.started_at_ns = p.started_ns();
    i.stdout_bytes = p.stdout_bytes();
    i.stderr_bytes = p.stderr_bytes();
    i.attached = p.attached();
    out.push_back(std::move(i));
  }
  return out;
}

Result<std::unique_ptr<ExecStream>> HostImpl::attach(const std::string& id, uint32_t pid, uint64_t stdout_offset,
                                                     uint64_t stderr_offset) {
  TRY_ASSIGN(GuestStream stream, guest_stream(id));
  return start_attach(std::move(stream.fd), std::move(stream.use), pid, stdout_offset, stderr_offset, options_.agent_deadline);
}

Status HostImpl::write_stdin(const std::string& id, uint32_t pid, std::string_view data, bool eof, Deadline deadline) {
  do {
    const std::string_view piece = data.substr(0, abi::kChunkBytes);
    data.remove_prefix(piece.size());
    abi::Request request;
    request.mutable_write_stdin()->set_pid(pid);
    request.mutable_write_stdin()->set_bytes(piece.data(), piece.size());
    request.mutable_write_stdin()->set_eof(eof && data.empty());
    TRY(guest_call(id, request, deadline));
  } while (!data.empty());
  return {};
}

Status HostImpl::send_signal(const std::string& id, uint32_t pid, uint32_t signal) {
  abi::Request request;
  request.mutable_signal()->set_pid(pid);
  request.mutable_signal()->set_signal(signal);
  TRY(guest_call(id, request, deadline_after(options_.agent_deadline)));
  return {};
}

Status HostImpl::resize(const std::string& id, uint32_t pid, WindowSize size) {
  abi::Request request;
  request.mutable_resize()->set_pid(pid);
  request.mutable_resize()->mutable_size()->set_rows(size.rows);
  request.mutable_resize()->mutable_size()->set_cols(size.cols);
  TRY(guest_call(id, request, deadline_after(options_.agent_deadline)));
  return {};
}

Result<std::unique_ptr<FileReader>> HostImpl::read_file(const std::string& id, const std::string& path,
                                                        const ReadOptions& options) {
  TRY(check_guest_path(path));
  TRY_ASSIGN(GuestStream stream, guest_stream(id));
  return start_read(std::move(stream.fd), std::move(stream.use), path, options, options_.agent_deadline);
}

Result<std::unique_ptr<FileWriter>> HostImpl::write_file(const std::string& id, const std::string& path,
                                                         const WriteOptions& options) {
  TRY(check_guest_path(path));
  TRY_ASSIGN(GuestStream stream, guest_stream(id));
  return start_write(std::move(stream.fd), std::move(stream.use), path, options, options_.agent_deadline);
}

Result<std::vector<FileInfo>> HostImpl::list_files(const std::string& id, const std::string& path, uint32_t depth,
                                                   const std::string& user) {
  TRY(check_guest_path(path));
  TRY_ASSIGN(GuestStream stream, guest_stream(id));
  AgentChannel channel(std::move(stream.fd));
  abi::Request request;
  request.mutable_list()->set_path(path);
  request.mutable_list()->set_depth(depth);
  request.mutable_list()->set_user(user);
  const Deadline deadline = deadline_after(4 * options_.agent_deadline);
  TRY(channel.send(request, deadline));
  std::vector<FileInfo> out;
  for (;;) {
    TRY_ASSIGN(const abi::Event event, channel.receive(deadline));
    if (event.has_result()) {
      TRY(check_result(event.result()));
      return out;
    }
    if (!event.has_entries())
      return fail(ErrorKind::kCorrupt, "the guest's agent sent an event that does not belong to a listing");
    for (const abi::FileInfo& f : event.entries().files()) out.push_back(file_info_of(f));
    if (out.size() > kMaxListed)
      return fail(ErrorKind::kInvalid,
                  "'" + path + "' holds more than " + std::to_string(kMaxListed) + " entries: list a smaller part");
  }
}

Result<FileInfo> HostImpl::stat_file(const std::string& id, const std::string& path, const std::string& user) {
  TRY(check_guest_path(path));
  abi::Request request;
  request.mutable_stat()->set_path(path);
  request.mutable_stat()->set_follow(false);
  request.mutable_stat()->set_user(user);
  TRY_ASSIGN(const abi::Result result, guest_call(id, request, deadline_after(options_.agent_deadline)));
  if (!result.has_file()) return fail(ErrorKind::kCorrupt, "the guest's agent answered without a file");
  return file_info_of(result.file());
}

Status HostImpl::make_dir(const std::string& id, const std::string& path, bool parents, uint32_t permissions,
                          const std::string& user) {
  TRY(check_guest_path(path));
  abi::Request request;
  request.mutable_mkdir()->set_path(path);
  request.mutable_mkdir()->set_parents(parents);
  request.mutable_mkdir()->set_permissions(permissions);
  request.mutable_mkdir()->set_user(user);
  TRY(guest_call(id, request, deadline_after(options_.agent_deadline)));
  return {};
}

Status HostImpl::move_file(const std::string& id, const std::string& from, const std::string& to, const std::string& user) {
  TRY(check_guest_path(from));
  TRY(check_guest_path(to));
  abi::Request request;
  request.mutable_move()->set_from(from);
  request.mutable_move()->set_to(to);
  request.mutable_move()->set_user(user);
  TRY(guest_call(id, request, deadline_after(options_.agent_deadline)));
  return {};
}

Status HostImpl::remove_file(const std::string& id, const std::string& path, bool recursive, const std::string& user) {
  TRY(check_guest_path(path));
  abi::Request request;
  request.mutable_remove()->set_path(path);
  request.mutable_remove()->set_recursive(recursive);
  request.mutable_remove()->set_user(user);
  TRY(guest_call(id, request, deadline_after(4 * options_.agent_deadline)));
  return {};
}

}  // namespace ramet::host
