// Running a command as if it were here: output, input, terminal, signals and exit status pass through.
//
// Three parties: the main thread reads the event stream; `input` copies our standard input into one long POST; `signals` turns
// signals into calls. Both helpers wait on a stop descriptor and end with the command.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/exec_reader.h"
#include "cli/exit_codes.h"
#include "cli/text.h"

namespace ramet::cli {
namespace {

namespace json = boost::json;

void raise_event(int fd) {
  const uint64_t one = 1;
  (void)!::write(fd, &one, sizeof one);
}

// True when `fd` can be read; false when it is time to stop.
bool wait_readable(int fd, int stop_fd) {
  while (true) {
    pollfd fds[2] = {{fd, POLLIN, 0}, {stop_fd, POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    if (fds[1].revents != 0) return false;
    if (fds[0].revents != 0) return true;
  }
}

class RunningCommand {
 public:
  RunningCommand(const ApiClient& api, std::string id, const ExecOptions& options, UniqueFd signal_fd, UniqueFd stop_fd)
      : api_(api), id_(std::move(id)), options_(options), signal_fd_(std::move(signal_fd)), stop_fd_(std::move(stop_fd)) {}
  ~RunningCommand() { stop_helpers(); }

  void started(uint32_t pid) {
    base_ = "/v1/sandboxes/" + id_ + "/processes/" + std::to_string(pid);
    signals_ = std::thread([this] { forward_signals(); });
    if (options_.interactive) input_ = std::thread([this] { forward_input(); });
  }

  void stop_helpers() {
    raise_event(stop_fd_.get());
    {
      const std::lock_guard lock(mutex_);
      if (upload_) upload_->abort();
    }
    if (input_.joinable()) input_.join();
    if (signals_.joinable()) signals_.join();
  }

 private:
  void forward_input();
  void forward_signals();

  const ApiClient& api_;
  const std::string id_;
  const ExecOptions& options_;
  const UniqueFd signal_fd_;
  const UniqueFd stop_fd_;
  std::string base_;
  std::mutex mutex_;
  std::unique_ptr<HttpStream> upload_;
  std::thread input_, signals_;
};

void RunningCommand::forward_input() {
  Result<std::unique_ptr<HttpStream>> opened = api_.open_upload("POST", base_ + "/stdin?eof=1");
  if (!opened) return;
  HttpStream* upload = opened->get();
  {
    const std::lock_guard lock(mutex_);
    upload_ = std::move(*opened);
  }
  std::vector<std::byte> piece(64 * 1024);
  while (wait_readable(STDIN_FILENO, stop_fd_.get())) {
    const ssize_t n = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) {
      (void)ApiClient::finish_upload(*upload);
      return;
    }
    if (!upload->write(std::span(piece).first(static_cast<size_t>(n)))) return;  // the command reads no more
  }
}

void RunningCommand::forward_signals() {
  while (wait_readable(signal_fd_.get(), stop_fd_.get())) {
    signalfd_siginfo info{};
    if (::read(signal_fd_.get(), &info, sizeof info) != sizeof info) continue;
    if (info.ssi_signo == SIGWINCH) {
      const TerminalSize size = terminal_size(STDIN_FILENO);
      if (options_.terminal) (void)api_.call("POST", base_ + "/resize", json::object{{"rows", size.rows}, {"cols", size.cols}});
    } else {
      (void)api_.call("POST", base_ + "/signal", json::object{{"signal", static_cast<int64_t>(info.ssi_signo)}});
    }
  }
}

// Signals that belong to the command from now on. Blocked before any thread starts.
Result<UniqueFd> catch_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return fail_errno("signalfd");
  return fd;
}

enum class Output { kStreamed, kWhole };
Result<json::object> exec_body(const ExecOptions& options, Output output) {
  json::object body;
  if (!options.command.empty()) {
    json::array argv;
    for (const std::string& word : options.command) argv.push_back(json::value(word));
    body["argv"] = std::move(argv);
  }
  TRY_ASSIGN(const auto env, parse_pairs(options.env, "variable"));
  json::object variables;
  for (const auto& [name, value] : env) variables[name] = value;
  if (!variables.empty()) body["env"] = std::move(variables);
  if (!options.cwd.empty()) body["cwd"] = options.cwd;
  if (!options.user.empty()) body["user"] = options.user;
  if (!options.timeout.empty()) {
    TRY_ASSIGN(body["timeout_seconds"], parse_duration(options.timeout));
  }
  if (options.terminal) {
    const TerminalSize size = terminal_size(STDIN_FILENO);
    body["pty"] = json::object{{"rows", size.rows}, {"cols", size.cols}};
    const char* term = std::getenv("TERM");
    if (term != nullptr && *term != '\0') body["term"] = term;
  }
  if (options.detach) {
    body["detach"] = true;
  } else if (output == Output::kStreamed) {
    body["stream"] = true;
    if (options.interactive) body["stdin_open"] = true;
  }
  return body;
}

Result<int> run_attached(Session& session, const ApiClient& api, const std::string& id, const ExecOptions& options) {
  TRY_ASSIGN(const json::object body, exec_body(options, Output::kStreamed));
  TRY_ASSIGN(UniqueFd signal_fd, catch_signals());
  UniqueFd stop_fd(::eventfd(0, EFD_CLOEXEC));
  if (!stop_fd) return fail_errno("eventfd");
  TRY_ASSIGN(const std::unique_ptr<HttpStream> stream, api.open_stream("POST", "/v1/sandboxes/" + id + "/exec", body));

  std::optional<RawTerminal> raw;
  if (options.terminal) raw.emplace(STDIN_FILENO);
  RunningCommand command(api, id, options, std::move(signal_fd), std::move(stop_fd));
  ExecSinks sinks;
  sinks.started = [&](uint32_t pid) { command.started(pid); };
  sinks.out = [](std::string_view bytes) { return write_all(STDOUT_FILENO, as_bytes(bytes)); };
  sinks.err = [](std::string_view bytes) { return write_all(STDERR_FILENO, as_bytes(bytes)); };
  const Result<ExecEnd> end = read_exec_events(*stream, sinks);
  command.stop_helpers();
  raw.reset();
  if (!end) return tl::unexpected(end.error());
  if (end->timed_out) session.note("the command was ended after " + options.timeout);
  return end->exit_code;
}

}  // namespace

Result<int> exec_in(Session& session, const std::string& id, const ExecOptions& options) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  if (options.terminal && ::isatty(STDIN_FILENO) != 1)
    return tl::unexpected(Error(ErrorKind::kInvalid, "-t needs a terminal as standard input").with_hint("Leave -t away."));
  if (!options.detach && !session.json) return run_attached(session, *api, id, options);
  if (options.interactive || options.terminal)
    return fail(ErrorKind::kInvalid, "-i and -t pass bytes through and cannot be combined with --json or --detach");
  TRY_ASSIGN(const json::object body, exec_body(options, Output::kWhole));
  TRY_ASSIGN(const std::string text, api->call_text("POST", "/v1/sandboxes/" + id + "/exec", body));
  TRY_ASSIGN(const json::value answer, parse_json(text));
  if (session.json)
    session.print_text(text);
  else
    printf("%lld\n", static_cast<long long>(answer.at("pid").to_number<int64_t>()));
  return options.detach ? 0 : static_cast<int>(answer.at("exit_code").to_number<int64_t>());
}

Result<int> cmd_exec(Session& session, const ExecOptions& options) {
  if (options.command.empty() && !options.terminal)
    return tl::unexpected(
        Error(ErrorKind::kInvalid, "no command is given").with_hint("ramet exec ID -- COMMAND..., or -t for a shell."));
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const std::string id, api->resolve(options.id));
  return exec_in(session, id, options);
}

Result<int> cmd_ps(Session& session, const std::string& reference) {
  TRY_ASSIGN(const ApiClient* api, session.api());
  TRY_ASSIGN(const std::string id, api->resolve(reference));
  TRY_ASSIGN(const std::string text, api->call_text("GET", "/v1/sandboxes/" + id + "/processes"));
  if (session.json) {
    session.print_text(text);
    return 0;
  }
  TRY_ASSIGN(const json::value answer, parse_json(text));
  Table table({{"PID", Align::kRight}, {"USER"}, {"STATE"}, {"COMMAND"}});
  for (const json::value& value : answer.at("processes").as_array()) {
    const json::object& p = value.as_object();
    std::string line;
    for (const json::value& word : p.at("argv").as_array()) line += (line.empty() ? "" : " ") + std::string(word.as_string());
    const std::string state =
        p.at("running").as_bool()
            ? "running"
            : "exit " + std::to_string(p.at("exit_code").is_null() ? 0 : p.at("exit_code").to_number<int64_t>());
    table.add({std::to_string(p.at("pid").to_number<int64_t>()), printable(std::string(p.at("user").as_string())), state,
               printable(line)});
  }
  printf("%s", table.render().c_str());
  return 0;
}

}  // namespace ramet::cli
