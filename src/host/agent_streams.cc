#include "host/agent_streams.h"

#include <algorithm>
#include <optional>

namespace ramet::host {
namespace {

ExitInfo exit_of(const abi::Exit& e) {
  return {e.code(), e.signal(), e.timed_out(), static_cast<double>(e.duration_ns()) / 1e6};
}

class AgentExecStream final : public ExecStream {
 public:
  AgentExecStream(UniqueFd stream, Use use, AgentPatience patience, bool detach, bool input)
      : use_(std::move(use)), channel_(std::move(stream)), patience_(patience), detach_(detach), input_(input) {}

  Status start(const abi::Request& request) {
    const Deadline deadline = deadline_after(patience_);
    TRY(channel_.send(request, deadline));
    // A command that cannot start is an error of the call, not of the stream.
    TRY_ASSIGN(first_, next_event(deadline));
    return {};
  }

  Result<std::optional<ExecEvent>> next(Deadline deadline) override {
    if (first_) return std::exchange(first_, std::nullopt);
    return next_event(deadline);
  }

  Status write_stdin(std::string_view data, Deadline deadline) override {
    if (!input_) return fail(ErrorKind::kConflict, "the command was started without standard input");
    while (!data.empty()) {
      const std::string_view piece = data.substr(0, abi::kChunkBytes);
      abi::Input input;
      input.mutable_data()->set_bytes(piece.data(), piece.size());
      TRY(channel_.send(input, deadline));
      data.remove_prefix(piece.size());
    }
    return {};
  }
  Status close_stdin() override {
    abi::Input input;
    input.mutable_data()->set_eof(true);
    return channel_.send(input, deadline_after(patience_));
  }
  Status send_signal(uint32_t signal) override {
    abi::Input input;
    input.set_signal(signal);
    return channel_.send(input, deadline_after(patience_));
  }
  Status resize(WindowSize size) override {
    abi::Input input;
    input.mutable_resize()->set_rows(size.rows);
    input.mutable_resize()->set_cols(size.cols);
    return channel_.send(input, deadline_after(patience_));
  }
  void cancel() override { channel_.cancel(); }

 private:
  Result<std::optional<ExecEvent>> next_event(Deadline deadline) {
    if (ended_) return std::optional<ExecEvent>();
    TRY_ASSIGN(abi::Event event, channel_.receive(deadline));
    ExecEvent out;
    if (event.has_started()) {
      out.kind = ExecEvent::Kind::kStarted;
      out.pid = event.started().pid();
    } else if (event.has_output()) {
      abi::Output& o = *event.mutable_output();
      if (o.fd() != 1 && o.fd() != 2) return broken("output of descriptor " + std::to_string(o.fd()));
      out.kind = o.fd() == 1 ? ExecEvent::Kind::kStdout : ExecEvent::Kind::kStderr;
      out.offset = o.offset();
      out.data = std::move(*o.mutable_bytes());
    } else if (event.has_result()) {
      ended_ = true;
      TRY(check_result(event.result()));
      if (event.result().has_exit()) {
        out.kind = ExecEvent::Kind::kExit;
        out.exit = exit_of(event.result().exit());
      } else if (detach_) {
        out.kind = ExecEvent::Kind::kDetached;
      } else {
        return broken("a result without exit status");
      }
    } else {
      return broken("an event that does not belong to a command");
    }
    return std::optional<ExecEvent>(std::move(out));
  }
  tl::unexpected<Error> broken(const std::string& what) {
    ended_ = true;
    channel_.cancel();
    return fail(ErrorKind::kCorrupt, "the guest's agent sent " + what);
  }

  const Use use_;  // let go of after the channel
  AgentChannel channel_;
  const AgentPatience patience_;
  const bool detach_, input_;
  std::optional<ExecEvent> first_;
  bool ended_ = false;
};

class AgentFileReader final : public FileReader {
 public:
  AgentFileReader(UniqueFd stream, Use use) : use_(std::move(use)), channel_(std::move(stream)) {}

  Status start(const abi::Request& request, Deadline deadline) {
    TRY(channel_.send(request, deadline));
    TRY_ASSIGN(first_, next_piece(deadline));
    return {};
  }
  Result<std::optional<std::string>> next(Deadline deadline) override {
    if (first_) return std::exchange(first_, std::nullopt);
    return next_piece(deadline);
  }
  void cancel() override { channel_.cancel(); }

 private:
  // Nothing after the result; a result before the last data is an error of the guest's file system (or an empty file).
  Result<std::optional<std::string>> next_piece(Deadline deadline) {
    while (!ended_) {
      TRY_ASSIGN(abi::Event event, channel_.receive(deadline));
      if (event.has_data()) {
        if (event.data().bytes().empty()) continue;
        return std::optional<std::string>(std::move(*event.mutable_data()->mutable_bytes()));
      }
      ended_ = true;
      if (!event.has_result()) {
        channel_.cancel();
        return fail(ErrorKind::kCorrupt, "the guest's agent sent an event that does not belong to a file");
      }
      TRY(check_result(event.result()));
    }
    return std::optional<std::string>();
  }

  const Use use_;
  AgentChannel channel_;
  std::optional<std::string> first_;
  bool ended_ = false;
};

class AgentFileWriter final : public FileWriter {
 public:
  AgentFileWriter(UniqueFd stream, Use use) : use_(std::move(use)), channel_(std::move(stream)) {}
  Status start(const abi::Request& request, Deadline deadline) { return channel_.send(request, deadline); }

  Status write(std::span<const std::byte> data, Deadline deadline) override {
    while (!data.empty()) {
      const std::span<const std::byte> piece = data.first(std::min(data.size(), abi::kChunkBytes));
      abi::Input input;
      input.mutable_data()->set_bytes(piece.data(), piece.size());
      const Status sent = channel_.send(input, deadline);
      if (!sent) return explain(sent);
      data = data.subspan(piece.size());
    }
    return {};
  }
  Result<FileInfo> finish(Deadline deadline) override {
    abi::Input input;
    input.mutable_data()->set_eof(true);
    const Status sent = channel_.send(input, deadline);
    if (!sent) return tl::unexpected<Error>(explain(sent).error());
    TRY_ASSIGN(const abi::Result result, channel_.receive_result(deadline));
    TRY(check_result(result));
    return file_info_of(result.file());
  }
  void cancel() override { channel_.cancel(); }

 private:
  // The agent may have answered why before it closed (disk full, no such directory).
  Status explain(const Status& sent) {
    if (sent.error().kind() != ErrorKind::kUnavailable) return sent;
    const Result<abi::Result> result = channel_.receive_result(deadline_after(Milliseconds(1000)));
    if (result && !check_result(*result)) return check_result(*result);
    return sent;
  }
  const Use use_;
  AgentChannel channel_;
};

FileType type_of(abi::FileType t) {
  switch (t) {
    case abi::FILE_REGULAR: return FileType::kRegular;
    case abi::FILE_DIRECTORY: return FileType::kDirectory;
    case abi::FILE_SYMLINK: return FileType::kSymlink;
    case abi::FILE_OTHER: return FileType::kOther;
    default: return FileType::kUnknown;
  }
}

}  // namespace

FileInfo file_info_of(const abi::FileInfo& f) {
  FileInfo i;
  i.path = f.path();
  i.type = type_of(f.type());
  i.size_bytes = f.size_bytes();
  i.mode = f.mode() & 07777;
  i.uid = f.uid();
  i.gid = f.gid();
  i.user = f.user();
  i.group = f.group();
  i.mtime_ns = f.mtime_ns();
  i.symlink_target = f.symlink_target();
  return i;
}

Status check_guest_path(const std::string& path) {
  if (path.empty() || path[0] != '/' || path.size() > 4096 || path.find('\0') != std::string::npos)
    return fail(ErrorKind::kInvalid, "path '" + printable(path, 100) + "' must be absolute and at most 4096 bytes long");
  return {};
}

Result<std::unique_ptr<ExecStream>> start_exec(UniqueFd stream, Use use, const ExecOptions& o, AgentPatience patience) {
  abi::Request request;
  abi::Exec& e = *request.mutable_exec();
  for (const std::string& a : o.argv) e.add_argv(a);
  e.set_shell(o.shell);
  for (const auto& [k, v] : o.env) (*e.mutable_env())[k] = v;
  e.set_cwd(o.cwd);
  e.set_user(o.user);
  e.set_stdin_mode(o.stdin_open ? abi::STDIN_PIPE : abi::STDIN_NULL);
  if (o.pty) {
    e.mutable_pty()->set_rows(o.pty->rows);
    e.mutable_pty()->set_cols(o.pty->cols);
    e.set_term(o.term);
  }
  e.set_timeout_ms(o.timeout_ms.value_or(0));
  e.set_detach(o.detach);
  e.set_tag(o.tag);
  auto s = std::make_unique<AgentExecStream>(std::move(stream), std::move(use), patience, o.detach,
                                             o.stdin_open || o.pty.has_value());
  TRY(s->start(request));
  return s;
}

Result<std::unique_ptr<ExecStream>> start_attach(UniqueFd stream, Use use, uint32_t pid, uint64_t out, uint64_t err,
                                                 AgentPatience patience) {
  abi::Request request;
  abi::Attach& a = *request.mutable_attach();
  a.set_pid(pid);
  a.set_stdout_offset(out);
  a.set_stderr_offset(err);
  auto s = std::make_unique<AgentExecStream>(std::move(stream), std::move(use), patience, false, true);
  TRY(s->start(request));
  return s;
}

Result<std::unique_ptr<FileReader>> start_read(UniqueFd stream, Use use, const std::string& path, const ReadOptions& o,
                                               AgentPatience patience) {
  abi::Request request;
  abi::ReadFile& r = *request.mutable_read();
  r.set_path(path);
  r.set_offset(o.offset);
  r.set_length(o.length);
  r.set_user(o.user);
  auto s = std::make_unique<AgentFileReader>(std::move(stream), std::move(use));
  TRY(s->start(request, deadline_after(patience)));
  return s;
}

Result<std::unique_ptr<FileWriter>> start_write(UniqueFd stream, Use use, const std::string& path, const WriteOptions& o,
                                                AgentPatience patience) {
  abi::Request request;
  abi::WriteFile& w = *request.mutable_write();
  w.set_path(path);
  w.set_mode(o.mode == WriteMode::kReplace ? abi::WRITE_REPLACE : o.mode == WriteMode::kAt ? abi::WRITE_AT : abi::WRITE_APPEND);
  w.set_offset(o.offset);
  w.set_permissions(o.permissions);
  w.set_user(o.user);
  w.set_create_parents(o.create_parents);
  auto s = std::make_unique<AgentFileWriter>(std::move(stream), std::move(use));
  TRY(s->start(request, deadline_after(patience)));
  return s;
}

}  // namespace ramet::host
