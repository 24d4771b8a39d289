// Copying between here and a sandbox. A file goes through the files API; a directory as a tar stream through a command in the
// guest, so that links, modes and times survive and nothing is kept in memory on the way.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <future>
#include <thread>

#include "base/child_process.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/copy_paths.h"
#include "cli/exec_reader.h"
#include "cli/places.h"
#include "cli/text.h"

namespace ramet::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr size_t kPieceBytes = 256 * 1024;

struct Copy {
  Session& session;
  const ApiClient& api;
  std::string id;
  std::string user;

  std::string target(std::string_view route, const std::string& path, const std::string& more = "") const {
    return "/v1/sandboxes/" + id + "/files" + std::string(route) + "?path=" + percent_encode(path) + more +
           (user.empty() ? "" : "&user=" + percent_encode(user));
  }
  // "file", "directory", ..., empty when there is nothing.
  Result<std::string> remote_type(const std::string& path) const {
    const Result<json::value> entry = api.call("GET", target("/stat", path));
    if (entry) return std::string(entry->at("type").as_string());
    if (entry.error().kind() == ErrorKind::kNotFound) return std::string();
    return tl::unexpected(entry.error());
  }
  json::object command(std::initializer_list<std::string> words) const {
    json::object body{{"stream", true}};
    json::array argv;
    for (const std::string& w : words) argv.push_back(json::value(w));
    body["argv"] = std::move(argv);
    if (!user.empty()) body["user"] = user;
    return body;
  }
};

Result<std::string> tar_program() {
  if (const std::optional<std::string> tar = find_program("tar")) return *tar;
  return fail(ErrorKind::kUnsupported, "copying directories needs `tar` on this computer");
}

Result<int> upload_file(const Copy& copy, const std::string& from, const std::string& to) {
  TRY_ASSIGN(const UniqueFd fd, open_file(from, O_RDONLY));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno("looking at " + from);
  char mode[8];
  snprintf(mode, sizeof mode, "%04o", st.st_mode & 0777);
  Progress progress(from + " -> " + copy.id + ":" + to, static_cast<uint64_t>(st.st_size),
                    copy.session.quiet || copy.session.json);
  TRY_ASSIGN(const std::unique_ptr<HttpStream> upload,
             copy.api.open_upload("PUT", copy.target("", to, std::string("&mode=") + mode)));
  std::vector<std::byte> piece(kPieceBytes);
  while (true) {
    const ssize_t n = ::read(fd.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("reading " + from);
    if (n == 0 || !upload->write(std::span(piece).first(static_cast<size_t>(n)))) break;  // a refusal is read below
    progress.add(static_cast<uint64_t>(n));
  }
  TRY_ASSIGN(const json::value entry, ApiClient::finish_upload(*upload));
  progress.done();
  if (copy.session.json) copy.session.print_json(entry);
  return 0;
}

Result<int> download_file(const Copy& copy, const std::string& from, const std::string& to) {
  TRY_ASSIGN(const json::value entry, copy.api.call("GET", copy.target("/stat", from)));
  TRY_ASSIGN(const std::unique_ptr<HttpStream> stream, copy.api.open_stream("GET", copy.target("", from)));
  const std::string part = to + ".ramet-part";
  TRY_ASSIGN(const UniqueFd fd, open_file(part, O_WRONLY | O_CREAT | O_TRUNC, 0666));
  const uint64_t total = entry.at("size_bytes").to_number<uint64_t>();
  Progress progress(copy.id + ":" + from + " -> " + to, total, copy.session.quiet || copy.session.json);
  std::vector<std::byte> piece(kPieceBytes);
  const Status copied = [&]() -> Status {
    while (true) {
      TRY_ASSIGN(const size_t n, stream->read_some(piece));
      if (n == 0) return {};
      TRY(write_all(fd.get(), std::span(piece).first(n)));
      progress.add(n);
    }
  }();
  if (!copied) {
    ::unlink(part.c_str());
    return tl::unexpected(copied.error());
  }
  const mode_t mode = static_cast<mode_t>(strtoul(std::string(entry.at("mode").as_string()).c_str(), nullptr, 8)) & 0777;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  (void)::fchmod(fd.get(), mode & ~mask);
  if (::rename(part.c_str(), to.c_str()) != 0) return fail_errno("renaming " + part + " to " + to);
  progress.done();
  if (copy.session.json) copy.session.print_json(entry);
  return 0;
}

Status check_tar_end(const ExecEnd& end, const std::string& words) {
  if (end.exit_code == 0) return {};
  return fail(ErrorKind::kIo, "`tar` in the sandbox ended with status " + std::to_string(end.exit_code) +
                                  (words.empty() ? "" : ": " + printable(words)));
}

Status reap_tar(ChildProcess& tar) {
  const std::optional<int> status = tar.wait(Deadline::max());
  if (status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return {};
  return fail(ErrorKind::kIo, "`tar` on this computer failed");
}

Result<int> finish_directory(const Copy& copy, Progress& progress, uint64_t bytes) {
  progress.done();
  if (copy.session.json) copy.session.print_json(json::object{{"type", "directory"}, {"tar_bytes", bytes}});
  return 0;
}

Result<int> upload_directory(const Copy& copy, const std::string& from, const std::string& to) {
  TRY(copy.api.call("POST", "/v1/sandboxes/" + copy.id + "/files/mkdir",
                    copy.user.empty() ? json::object{{"path", to}, {"parents", true}}
                                      : json::object{{"path", to}, {"parents", true}, {"user", copy.user}}));
  json::object body = copy.command({"tar", "-xf", "-", "-C", to});
  body["stdin_open"] = true;
  TRY_ASSIGN(const std::unique_ptr<HttpStream> events,
             copy.api.open_stream("POST", "/v1/sandboxes/" + copy.id + "/exec", body));

  std::promise<uint32_t> pid_promise;
  std::future<uint32_t> pid = pid_promise.get_future();
  bool has_pid = false;
  std::string words;
  ExecSinks sinks;
  sinks.started = [&](uint32_t p) {
    has_pid = true;
    pid_promise.set_value(p);
  };
  sinks.out = [](std::string_view) -> Status { return {}; };
  sinks.err = [&](std::string_view text) -> Status {
    if (words.size() < 1000) words += text;
    return {};
  };
  Result<ExecEnd> end = ExecEnd{};
  std::jthread reader([&] {
    end = read_exec_events(*events, sinks);
    if (!has_pid) pid_promise.set_value(0);
  });
  struct Abort {  // before `reader` is joined on the ways out below
    HttpStream& stream;
    ~Abort() { stream.abort(); }
  } const abort_on_return{*events};
  const uint32_t running = pid.get();
  if (running == 0) {
    reader.join();
    if (!end) return tl::unexpected(end.error());
    return fail(ErrorKind::kInternal, "the server did not say which process it started");
  }

  TRY_ASSIGN(const std::string program, tar_program());
  TRY_ASSIGN(Pipe pipe, make_pipe());
  SpawnOptions spawn;
  spawn.argv = {program, "-b", "128", "-C", from, "-cf", "-", "."};  // records of 64 KiB: fewer, larger pieces
  spawn.stdout_fd = pipe.write_end.get();
  spawn.new_session = false;
  TRY_ASSIGN(ChildProcess tar, ChildProcess::spawn(spawn));
  pipe.write_end.reset();
  TRY_ASSIGN(
      const std::unique_ptr<HttpStream> upload,
      copy.api.open_upload("POST", "/v1/sandboxes/" + copy.id + "/processes/" + std::to_string(running) + "/stdin?eof=1"));
  Progress progress(from + " -> " + copy.id + ":" + to, 0, copy.session.quiet || copy.session.json);
  std::vector<std::byte> piece(kPieceBytes);
  uint64_t bytes = 0;
  while (true) {
    const ssize_t n = ::read(pipe.read_end.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || !upload->write(std::span(piece).first(static_cast<size_t>(n)))) break;
    bytes += static_cast<uint64_t>(n);
    progress.add(static_cast<uint64_t>(n));
  }
  pipe.read_end.reset();
  (void)ApiClient::finish_upload(*upload);  // tar may end before it took the padding; its status tells whether all was there
  reader.join();
  if (!end) return tl::unexpected(end.error());
  TRY(check_tar_end(*end, words));
  TRY(reap_tar(tar));
  return finish_directory(copy, progress, bytes);
}

Result<int> download_directory(const Copy& copy, const std::string& from, const std::string& to) {
  TRY(make_directories(to));
  TRY_ASSIGN(const std::string program, tar_program());
  TRY_ASSIGN(Pipe pipe, make_pipe());
  SpawnOptions spawn;
  // The guest is not trusted: nothing outside `to` (tar's own rule), no owners of its choice.
  spawn.argv = {program, "-xf", "-", "--no-same-owner", "--no-same-permissions", "-C", to};
  spawn.stdin_fd = pipe.read_end.get();
  spawn.new_session = false;
  TRY_ASSIGN(ChildProcess tar, ChildProcess::spawn(spawn));
  pipe.read_end.reset();
  TRY_ASSIGN(const std::unique_ptr<HttpStream> events,
             copy.api.open_stream("POST", "/v1/sandboxes/" + copy.id + "/exec",
                                  copy.command({"tar", "-b", "128", "-C", from, "-cf", "-", "."})));
  Progress progress(copy.id + ":" + from + " -> " + to, 0, copy.session.quiet || copy.session.json);
  uint64_t bytes = 0;
  std::string words;
  ExecSinks sinks;
  sinks.out = [&](std::string_view piece) -> Status {
    bytes += piece.size();
    progress.add(piece.size());
    return write_all(pipe.write_end.get(), as_bytes(piece));
  };
  sinks.err = [&](std::string_view text) -> Status {
    if (words.size() < 1000) words += text;
    return {};
  };
  TRY_ASSIGN(const ExecEnd end, read_exec_events(*events, sinks));
  pipe.write_end.reset();
  TRY(check_tar_end(end, words));
  TRY(reap_tar(tar));
  return finish_directory(copy, progress, bytes);
}

Result<int> upload(const Copy& copy, const std::string& from, std::string to) {
  struct stat st {};
  if (::stat(from.c_str(), &st) != 0) return fail_errno("looking at " + from);
  TRY_ASSIGN(const std::string type, copy.remote_type(to));
  to = copy_target(from, to, type == "directory");
  return S_ISDIR(st.st_mode) ? upload_directory(copy, from, to) : upload_file(copy, from, to);
}

Result<int> download(const Copy& copy, const std::string& from, std::string to) {
  TRY_ASSIGN(const std::string type, copy.remote_type(from));
  if (type.empty()) return fail(ErrorKind::kNotFound, "there is no `" + from + "` in " + copy.id);
  std::error_code ec;
  to = copy_target(from, to, fs::is_directory(to, ec));
  return type == "directory" ? download_directory(copy, from, to) : download_file(copy, from, to);
}

}  // namespace

Result<int> cmd_cp(Session& session, const CopyOptions& options) {
  const CopyPlace from = parse_copy_place(options.from), to = parse_copy_place(options.to);
  if (from.sandbox.empty() == to.sandbox.empty())
    return tl::unexpected(
        Error(ErrorKind::kInvalid, from.sandbox.empty() ? "neither side is in a sandbox" : "both sides are in a sandbox")
            .with_hint("ramet cp FILE ID:/path, or ramet cp ID:/path FILE. Write ./a:b for a local name with a colon."));
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(std::string id, api->resolve(from.sandbox.empty() ? to.sandbox : from.sandbox));
  const Copy copy{session, *api, std::move(id), options.user};
  return from.sandbox.empty() ? upload(copy, from.path, to.path) : download(copy, from.path, to.path);
}

}  // namespace ramet::cli
